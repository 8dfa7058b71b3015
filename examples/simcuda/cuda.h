/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_CUDA_H
#define SIMCUDA_CUDA_H

/*
 * cuda: the types, constants and structure layouts of the CUDA Driver API that the
 * simulated driver needs (CUDA Driver API reference 12.4). Only used ones; the names are
 * those of the reference.
 */

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_UNKNOWN = 999,
};

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint32_t CUdeviceptr_v1; /* the first ABI: 32 bits */
/* Opaque in the real API; integers here, so that none is ever dereferenced. */
typedef uint64_t CUcontext, CUarray, CUmipmappedArray, CUstream, CUevent, CUmemoryPool;
typedef uint64_t CUmemGenericAllocationHandle;

/* CUmemAttach_flags */
enum { CU_MEM_ATTACH_GLOBAL = 1, CU_MEM_ATTACH_HOST = 2, CU_MEM_ATTACH_SINGLE = 4 };

/* CUarray_format: bytes per channel, or per block, are in array_bytes(). */
enum {
	CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
	CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
	CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
	CU_AD_FORMAT_SIGNED_INT8 = 0x08,
	CU_AD_FORMAT_SIGNED_INT16 = 0x09,
	CU_AD_FORMAT_SIGNED_INT32 = 0x0a,
	CU_AD_FORMAT_HALF = 0x10,
	CU_AD_FORMAT_FLOAT = 0x20,
	CU_AD_FORMAT_BC1_UNORM = 0x91, /* and with sRGB: 0x92 */
	CU_AD_FORMAT_BC4_UNORM = 0x97,
	CU_AD_FORMAT_BC4_SNORM = 0x98,
	CU_AD_FORMAT_BC7_UNORM_SRGB = 0x9e,
	CU_AD_FORMAT_UNORM_INT8X1 = 0xc0, /* two and four channels: 0xc1, 0xc2 */
	CU_AD_FORMAT_UNORM_INT16X1 = 0xc3,
	CU_AD_FORMAT_SNORM_INT8X1 = 0xc6,
	CU_AD_FORMAT_SNORM_INT16X1 = 0xc9,
	CU_AD_FORMAT_SNORM_INT16X4 = 0xcb,
};

enum { CUDA_ARRAY3D_LAYERED = 1, CUDA_ARRAY3D_SPARSE = 0x40, CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80 };

typedef struct {
	uint32_t Width, Height;
	uint32_t Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
	size_t Width, Height;
	uint32_t Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
	uint32_t Width, Height, Depth;
	uint32_t Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
	size_t Width, Height, Depth;
	uint32_t Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_LOCATION_TYPE_HOST = 2,
       CU_MEM_LOCATION_TYPE_HOST_NUMA = 3, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4 };
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };

typedef struct {
	uint32_t type;
	int32_t id;
} CUmemLocation;

typedef struct {
	uint32_t type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
	uint32_t allocType, handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	uint16_t usage;
	unsigned char reserved[54];
} CUmemPoolProps;

#endif
