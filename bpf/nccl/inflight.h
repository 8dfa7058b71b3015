/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_INFLIGHT_H
#define GPU_GADGETS_NCCL_INFLIGHT_H

#include "nccl/apis.h"
#include "nccl/memory/identity.h"

/*
 * inflight: state that nccl_trace keeps of a call until it returns, and of a group
 * (ncclGroupStart … ncclGroupEnd) until its end, when its calls are issued.
 */
#define NCCL_GROUP_COMMUNICATORS 64 /* in one group of one thread */
#define NCCL_GROUP_CREATED 16	    /* made in one group */

/* A communicator that is being created: its handle is read when the call, or the group
 * around it, has returned. */
struct nccl_created {
	__u64 address; /* where NCCL will store the handle */
	__u64 identity; /* 0: unknown */
	__u64 parent;
	__s32 rank, size; /* -1: unknown */
	__s32 device;
	__s32 color, key, parent_rank; /* of a split */
	char name[NCCL_NAME_BYTES];
};

struct nccl_group {
	__u64 serial; /* boot ns of the outermost start, mixed with the thread */
	__u32 depth;
	__u32 communicators;
	__u32 created_count;
	__u32 pad;
	__u64 communicator[NCCL_GROUP_COMMUNICATORS];
	struct nccl_created created[NCCL_GROUP_CREATED];
};

struct inflight {
	__u64 sp; /* at entry; 0: the thread is in no call */
	__u64 ip; /* of the probe: in the called function */
	__u64 enter_boot_ns;
	__u64 communicator;
	__u64 seq; /* of the operation that it issues; 0: none */
	__u64 first; /* argument */
	__u64 a, b; /* count or addresses, depending on the function */
	__u64 stream; /* normalised: see nccl_stream_key() */
	__u32 api;    /* enum nccl_api_id */
	__u32 type;
	struct nccl_created created;
	struct nccl_created pending; /* its handle is not stored yet; address 0: none */
	__u64 unique_id[16];
	__u64 group_process; /* process that the group belongs to */
	struct nccl_group group;
};

#endif
