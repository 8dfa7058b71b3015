/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_APIS_H
#define GPU_GADGETS_HIP_APIS_H

/*
 * apis: the table of AMD's HIP runtime, libamdhip64, instead of that of the CUDA driver. Ops,
 * kinds, flags and columns are those of memory/apis.h, which includes this file.
 * HIP is runtime and driver in one, and calls none of its own exports: each call of a program
 * reaches one of these once.
 *
 * Signatures: hip_runtime_api.h 6.4.3. Functions that a version does not export are not probed.
 *
 * What allocates or frees and is not here, and why: docs/reference/amd.md.
 *
 * A context of HIP is a device. hipCtxCreate answers the device's number as a handle and leaves
 * the thread's device as it is; no context owns memory, and none takes memory with it. Only
 * hipDeviceReset does; hipDevicePrimaryCtxReset of ROCm does nothing.
 */

/* X(symbol, op, kind, flags, a, b, c) */
#define MEMORY_PROBED_APIS(X) \
	X(hipMalloc, MEMORY_ALLOC, KIND_DEVICE, 0, 0, 1, 0) \
	X(hipExtMallocWithFlags, MEMORY_ALLOC, KIND_DEVICE, 0, 0, 1, 0) \
	X(hipMallocPitch, MEMORY_ALLOC_PITCH, KIND_DEVICE, 0, 0, 1, 3) \
	X(hipMemAllocPitch, MEMORY_ALLOC_PITCH, KIND_DEVICE, 0, 0, 1, 3) \
	X(hipMalloc3D, MEMORY_ALLOC_PITCH, KIND_DEVICE, MEMORY_EXTENT(6), 0, 0, 0) \
	X(hipFree, MEMORY_FREE, KIND_DEVICE, 0, 0, 0, 0) \
	X(hipMallocAsync, MEMORY_ALLOC, KIND_POOL, 0, 0, 1, 0) \
	X(hipMallocFromPoolAsync, MEMORY_ALLOC_POOL, KIND_POOL, 0, 0, 1, 2) \
	X(hipFreeAsync, MEMORY_FREE, KIND_POOL, 0, 0, 0, 0) \
	X(hipMallocManaged, MEMORY_ALLOC, KIND_MANAGED, 0, 0, 1, 0) \
	X(hipMallocHost, MEMORY_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(hipMemAllocHost, MEMORY_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(hipHostMalloc, MEMORY_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(hipHostAlloc, MEMORY_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(hipFreeHost, MEMORY_FREE, KIND_HOST, 0, 0, 0, 0) \
	X(hipHostFree, MEMORY_FREE, KIND_HOST, 0, 0, 0, 0) \
	X(hipHostRegister, MEMORY_REGISTER, KIND_HOST, MEMORY_REGISTERED, 0, 1, 0) \
	X(hipHostUnregister, MEMORY_FREE, KIND_HOST, MEMORY_REGISTERED, 0, 0, 0) \
	X(hipArrayCreate, MEMORY_ARRAY, KIND_ARRAY, 0, 0, 1, 0) \
	X(hipArray3DCreate, MEMORY_ARRAY3D, KIND_ARRAY, 0, 0, 1, 0) \
	X(hipMallocArray, MEMORY_ARRAY, KIND_ARRAY, MEMORY_CHANNELS | MEMORY_EXTENT(2), 0, 1, 0) \
	X(hipMalloc3DArray, MEMORY_ARRAY3D, KIND_ARRAY, MEMORY_CHANNELS | MEMORY_EXTENT(6), 0, 1, \
	  0) \
	X(hipArrayDestroy, MEMORY_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(hipFreeArray, MEMORY_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(hipMipmappedArrayCreate, MEMORY_MIPMAP, KIND_ARRAY, 0, 0, 1, 2) \
	X(hipMallocMipmappedArray, MEMORY_MIPMAP, KIND_ARRAY, MEMORY_CHANNELS | MEMORY_EXTENT(6), \
	  0, 1, 2) \
	X(hipMipmappedArrayDestroy, MEMORY_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(hipFreeMipmappedArray, MEMORY_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(hipMemCreate, MEMORY_VMM_CREATE, KIND_VMM, 0, 0, 1, 2) \
	X(hipMemImportFromShareableHandle, MEMORY_VMM_IMPORT, KIND_VMM, 0, 0, 0, 0) \
	X(hipMemRetainAllocationHandle, MEMORY_VMM_RETAIN, KIND_VMM, 0, 0, 1, 0) \
	X(hipMemRelease, MEMORY_VMM_RELEASE, KIND_VMM, 0, 0, 0, 0) \
	X(hipMemMap, MEMORY_VMM_MAP, KIND_VMM, 0, 0, 1, 3) \
	X(hipMemUnmap, MEMORY_VMM_UNMAP, KIND_VMM, 0, 0, 1, 0) \
	X(hipMemAddressFree, MEMORY_ADDRESS_FREE, KIND_VMM, 0, 0, 1, 0) \
	X(hipDeviceReset, MEMORY_DEVICE_RESET, KIND_NONE, 0, 0, 0, 0) \
	X(hipGetDeviceCount, MEMORY_DEVICE_COUNT, KIND_NONE, 0, 0, 0, 0) \
	X(hipSetDevice, MEMORY_DEVICE_SET, KIND_NONE, 0, 0, 0, 0) \
	X(hipCtxSetCurrent, MEMORY_DEVICE_OF, KIND_NONE, 0, 0, 0, 0) \
	X(hipCtxPushCurrent, MEMORY_DEVICE_OF, KIND_NONE, 0, 0, 0, 0) \
	X(hipCtxCreate, MEMORY_POOL_DEVICE, KIND_NONE, 0, 0, 2, 0) \
	X(hipDevicePrimaryCtxRetain, MEMORY_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0) \
	X(hipMemPoolCreate, MEMORY_POOL_CREATE, KIND_NONE, 0, 0, 1, 0) \
	X(hipDeviceGetDefaultMemPool, MEMORY_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0) \
	X(hipDeviceGetMemPool, MEMORY_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0)

/* What is probed on demand only: FACT_DEVICE of call/demand.h. */
#define MEMORY_DEMAND_APIS(X) X(hipGetDevice, MEMORY_CTX_DEVICE, KIND_NONE, 0, 0, 0, 0)

#endif
