/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_APIS_H
#define GPU_GADGETS_HIP_APIS_H

/*
 * apis: the table of AMD's HIP runtime, libamdhip64, instead of that of the CUDA driver. Ops,
 * kinds, flags and columns are those of cuda/apis.h, which includes this file for VENDOR_HIP.
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
#define DRIVER_LIBRARY libamdhip64

/* X(symbol, op, kind, flags, a, b, c) */
#define CUDA_PROBED_APIS(X) \
	X(hipMalloc, CUDA_ALLOC, KIND_DEVICE, 0, 0, 1, 0) \
	X(hipExtMallocWithFlags, CUDA_ALLOC, KIND_DEVICE, 0, 0, 1, 0) \
	X(hipMallocPitch, CUDA_ALLOC_PITCH, KIND_DEVICE, 0, 0, 1, 3) \
	X(hipMemAllocPitch, CUDA_ALLOC_PITCH, KIND_DEVICE, 0, 0, 1, 3) \
	X(hipMalloc3D, CUDA_ALLOC_PITCH, KIND_DEVICE, CUDA_EXTENT, 0, 0, 0) \
	X(hipFree, CUDA_FREE, KIND_DEVICE, 0, 0, 0, 0) \
	X(hipMallocAsync, CUDA_ALLOC, KIND_POOL, 0, 0, 1, 0) \
	X(hipMallocFromPoolAsync, CUDA_ALLOC_POOL, KIND_POOL, 0, 0, 1, 2) \
	X(hipFreeAsync, CUDA_FREE, KIND_POOL, 0, 0, 0, 0) \
	X(hipMallocManaged, CUDA_ALLOC, KIND_MANAGED, 0, 0, 1, 0) \
	X(hipMallocHost, CUDA_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(hipMemAllocHost, CUDA_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(hipHostMalloc, CUDA_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(hipHostAlloc, CUDA_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(hipFreeHost, CUDA_FREE, KIND_HOST, 0, 0, 0, 0) \
	X(hipHostFree, CUDA_FREE, KIND_HOST, 0, 0, 0, 0) \
	X(hipHostRegister, CUDA_REGISTER, KIND_HOST, CUDA_REGISTERED, 0, 1, 0) \
	X(hipHostUnregister, CUDA_FREE, KIND_HOST, CUDA_REGISTERED, 0, 0, 0) \
	X(hipArrayCreate, CUDA_ARRAY, KIND_ARRAY, 0, 0, 1, 0) \
	X(hipArray3DCreate, CUDA_ARRAY3D, KIND_ARRAY, 0, 0, 1, 0) \
	X(hipMallocArray, CUDA_ARRAY, KIND_ARRAY, CUDA_CHANNELS, 0, 1, 0) \
	X(hipMalloc3DArray, CUDA_ARRAY3D, KIND_ARRAY, CUDA_CHANNELS | CUDA_EXTENT, 0, 1, 0) \
	X(hipArrayDestroy, CUDA_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(hipFreeArray, CUDA_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(hipMipmappedArrayCreate, CUDA_MIPMAP, KIND_ARRAY, 0, 0, 1, 2) \
	X(hipMallocMipmappedArray, CUDA_MIPMAP, KIND_ARRAY, CUDA_CHANNELS | CUDA_EXTENT, 0, 1, 2) \
	X(hipMipmappedArrayDestroy, CUDA_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(hipFreeMipmappedArray, CUDA_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(hipMemCreate, CUDA_VMM_CREATE, KIND_VMM, 0, 0, 1, 2) \
	X(hipMemImportFromShareableHandle, CUDA_VMM_IMPORT, KIND_VMM, 0, 0, 0, 0) \
	X(hipMemRetainAllocationHandle, CUDA_VMM_RETAIN, KIND_VMM, 0, 0, 1, 0) \
	X(hipMemRelease, CUDA_VMM_RELEASE, KIND_VMM, 0, 0, 0, 0) \
	X(hipMemMap, CUDA_VMM_MAP, KIND_VMM, 0, 0, 1, 3) \
	X(hipMemUnmap, CUDA_VMM_UNMAP, KIND_VMM, 0, 0, 1, 0) \
	X(hipMemAddressFree, CUDA_ADDRESS_FREE, KIND_VMM, 0, 0, 1, 0) \
	X(hipDeviceReset, CUDA_DEVICE_RESET, KIND_NONE, 0, 0, 0, 0) \
	X(hipGetDeviceCount, CUDA_DEVICE_COUNT, KIND_NONE, 0, 0, 0, 0) \
	X(hipSetDevice, CUDA_DEVICE_SET, KIND_NONE, 0, 0, 0, 0) \
	X(hipCtxSetCurrent, CUDA_DEVICE_OF, KIND_NONE, 0, 0, 0, 0) \
	X(hipCtxPushCurrent, CUDA_DEVICE_OF, KIND_NONE, 0, 0, 0, 0) \
	X(hipCtxCreate, CUDA_POOL_DEVICE, KIND_NONE, 0, 0, 2, 0) \
	X(hipDevicePrimaryCtxRetain, CUDA_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0) \
	X(hipMemPoolCreate, CUDA_POOL_CREATE, KIND_NONE, 0, 0, 1, 0) \
	X(hipDeviceGetDefaultMemPool, CUDA_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0) \
	X(hipDeviceGetMemPool, CUDA_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0)

/* What is probed on demand only: FACT_DEVICE of call/demand.h. */
#define CUDA_DEMAND_APIS(X) X(hipGetDevice, CUDA_CTX_DEVICE, KIND_NONE, 0, 0, 0, 0)

/* The API that answers FACT_DEVICE. */
#define API_DEVICE_ANSWER API_hipGetDevice

#endif
