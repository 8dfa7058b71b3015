/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMNCCL_NCCL_H
#define SIMNCCL_NCCL_H

/*
 * nccl: types and constants of NCCL's ABI that the simulated library needs, by the names
 * of the reference (NCCL 2.29). Only used ones.
 */
#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef uint64_t cudaStream_t; /* opaque */

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
	ncclSuccess = 0,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7,
} ncclResult_t;

#define NCCL_SPLIT_NOCOLOR (-1)

typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking, cgaClusterSize, minCTAs, maxCTAs;
	const char *netName;
	int splitShare, trafficClass;
	const char *commName;
} ncclConfig_t;

#define NCCL_SIM_INFO_MAGIC 0x74685283

typedef struct {
	size_t size;
	unsigned magic, version;
	float estimatedTime;
} ncclSimInfo_t;

typedef int ncclDataType_t, ncclRedOp_t;

#endif
