/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CUDA_APIS_H
#define GPU_GADGETS_CUDA_APIS_H

/*
 * apis: the functions of the CUDA driver that decide who holds GPU memory. Ops, kinds, flags and
 * columns: memory/apis.h, which includes this file.
 *
 * The driver, not the runtime, is traced: every cudart, static or shared, and
 * every other framework ends here, so nothing is counted twice.
 *
 * Signatures: CUDA Driver API reference 12.4, and 13 for what it added, cuda.h. Symbols: libcuda
 * 550.163. Functions that a version does not export are not probed.
 */

/* X(symbol, op, kind, flags, a, b, c) */
#define MEMORY_PROBED_APIS(X) \
	X(cuMemAlloc, MEMORY_ALLOC, KIND_DEVICE, MEMORY_ABI1, 0, 1, 0) \
	X(cuMemAlloc_v2, MEMORY_ALLOC, KIND_DEVICE, 0, 0, 1, 0) \
	X(cuMemAllocPitch, MEMORY_ALLOC_PITCH, KIND_DEVICE, MEMORY_ABI1, 0, 1, 3) \
	X(cuMemAllocPitch_v2, MEMORY_ALLOC_PITCH, KIND_DEVICE, 0, 0, 1, 3) \
	X(cuMemFree, MEMORY_FREE, KIND_DEVICE, MEMORY_ABI1, 0, 0, 0) \
	X(cuMemFree_v2, MEMORY_FREE, KIND_DEVICE, 0, 0, 0, 0) \
	X(cuMemAllocAsync, MEMORY_ALLOC, KIND_POOL, 0, 0, 1, 0) \
	X(cuMemAllocAsync_ptsz, MEMORY_ALLOC, KIND_POOL, 0, 0, 1, 0) \
	X(cuMemAllocFromPoolAsync, MEMORY_ALLOC_POOL, KIND_POOL, 0, 0, 1, 2) \
	X(cuMemAllocFromPoolAsync_ptsz, MEMORY_ALLOC_POOL, KIND_POOL, 0, 0, 1, 2) \
	X(cuMemFreeAsync, MEMORY_FREE, KIND_POOL, 0, 0, 0, 0) \
	X(cuMemFreeAsync_ptsz, MEMORY_FREE, KIND_POOL, 0, 0, 0, 0) \
	X(cuMemAllocManaged, MEMORY_ALLOC, KIND_MANAGED, 0, 0, 1, 0) \
	X(cuMemAllocHost, MEMORY_ALLOC, KIND_HOST, MEMORY_SIZE32, 0, 1, 0) \
	X(cuMemAllocHost_v2, MEMORY_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(cuMemHostAlloc, MEMORY_ALLOC, KIND_HOST, 0, 0, 1, 0) \
	X(cuMemFreeHost, MEMORY_FREE, KIND_HOST, 0, 0, 0, 0) \
	X(cuMemHostRegister, MEMORY_REGISTER, KIND_HOST, MEMORY_REGISTERED, 0, 1, 0) \
	X(cuMemHostRegister_v2, MEMORY_REGISTER, KIND_HOST, MEMORY_REGISTERED, 0, 1, 0) \
	X(cuMemHostUnregister, MEMORY_FREE, KIND_HOST, MEMORY_REGISTERED, 0, 0, 0) \
	X(cuArrayCreate, MEMORY_ARRAY, KIND_ARRAY, MEMORY_ABI1, 0, 1, 0) \
	X(cuArrayCreate_v2, MEMORY_ARRAY, KIND_ARRAY, 0, 0, 1, 0) \
	X(cuArray3DCreate, MEMORY_ARRAY3D, KIND_ARRAY, MEMORY_ABI1, 0, 1, 0) \
	X(cuArray3DCreate_v2, MEMORY_ARRAY3D, KIND_ARRAY, 0, 0, 1, 0) \
	X(cuArrayDestroy, MEMORY_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(cuMipmappedArrayCreate, MEMORY_MIPMAP, KIND_ARRAY, 0, 0, 1, 2) \
	X(cuMipmappedArrayDestroy, MEMORY_FREE, KIND_ARRAY, 0, 0, 0, 0) \
	X(cuMemCreate, MEMORY_VMM_CREATE, KIND_VMM, 0, 0, 1, 2) \
	X(cuMemImportFromShareableHandle, MEMORY_VMM_IMPORT, KIND_VMM, 0, 0, 0, 0) \
	X(cuMemRetainAllocationHandle, MEMORY_VMM_RETAIN, KIND_VMM, 0, 0, 1, 0) \
	X(cuMemRelease, MEMORY_VMM_RELEASE, KIND_VMM, 0, 0, 0, 0) \
	X(cuMemMap, MEMORY_VMM_MAP, KIND_VMM, 0, 0, 1, 3) \
	X(cuMemUnmap, MEMORY_VMM_UNMAP, KIND_VMM, 0, 0, 1, 0) \
	X(cuCtxCreate, MEMORY_CTX_CREATE, KIND_CONTEXT, 0, 0, 2, 0) \
	X(cuCtxCreate_v2, MEMORY_CTX_CREATE, KIND_CONTEXT, 0, 0, 2, 0) \
	X(cuCtxCreate_v3, MEMORY_CTX_CREATE, KIND_CONTEXT, 0, 0, 4, 0) \
	X(cuCtxCreate_v4, MEMORY_CTX_CREATE, KIND_CONTEXT, 0, 0, 3, 0) \
	X(cuCtxDestroy, MEMORY_CTX_DESTROY, KIND_CONTEXT, 0, 0, 0, 0) \
	X(cuCtxDestroy_v2, MEMORY_CTX_DESTROY, KIND_CONTEXT, 0, 0, 0, 0) \
	X(cuCtxSetCurrent, MEMORY_CTX_SET, KIND_NONE, 0, 0, 0, 0) \
	X(cuCtxPushCurrent, MEMORY_CTX_PUSH, KIND_NONE, 0, 0, 0, 0) \
	X(cuCtxPushCurrent_v2, MEMORY_CTX_PUSH, KIND_NONE, 0, 0, 0, 0) \
	X(cuCtxPopCurrent, MEMORY_CTX_POP, KIND_NONE, 0, 0, 0, 0) \
	X(cuCtxPopCurrent_v2, MEMORY_CTX_POP, KIND_NONE, 0, 0, 0, 0) \
	X(cuDevicePrimaryCtxRetain, MEMORY_PRIMARY_RETAIN, KIND_CONTEXT, 0, 0, 1, 0) \
	X(cuDevicePrimaryCtxRelease, MEMORY_PRIMARY_RELEASE, KIND_CONTEXT, 0, 0, 0, 0) \
	X(cuDevicePrimaryCtxRelease_v2, MEMORY_PRIMARY_RELEASE, KIND_CONTEXT, 0, 0, 0, 0) \
	X(cuDevicePrimaryCtxReset, MEMORY_PRIMARY_RESET, KIND_CONTEXT, 0, 0, 0, 0) \
	X(cuDevicePrimaryCtxReset_v2, MEMORY_PRIMARY_RESET, KIND_CONTEXT, 0, 0, 0, 0) \
	X(cuMemPoolCreate, MEMORY_POOL_CREATE, KIND_NONE, 0, 0, 1, 0) \
	X(cuDeviceGetDefaultMemPool, MEMORY_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0) \
	X(cuDeviceGetMemPool, MEMORY_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0) \
	X(cuMemGetDefaultMemPool, MEMORY_POOL_LOCATION, KIND_NONE, 0, 0, 1, 0) \
	X(cuMemGetMemPool, MEMORY_POOL_LOCATION, KIND_NONE, 0, 0, 1, 0)

/* What is probed on demand only: FACT_DEVICE of call/demand.h. */
#define MEMORY_DEMAND_APIS(X) X(cuCtxGetDevice, MEMORY_CTX_DEVICE, KIND_NONE, 0, 0, 0, 0)

/*
 * Libraries between a program and the driver that limit its memory: preloaded, they export the
 * driver's functions, and where their limit is reached they refuse without asking the driver.
 * Known by the name of their file. Gemini's libgemhook ends the process instead.
 */
#define INTERPOSERS(X) \
	X(1, "libvgpu")		/* HAMi-core; also of Volcano */ \
	X(2, "libvgpu-control") /* vgpu-manager */ \
	X(3, "libcuda-control") /* vcuda-controller of GPU Manager */ \
	X(4, "libnvshare")	/* nvshare */

/* What such a library may refuse: all that allocates, with the library's number. */
#define INTERPOSED_APIS(X, number, library) \
	X(cuMemAlloc, number, library) \
	X(cuMemAlloc_v2, number, library) \
	X(cuMemAllocPitch, number, library) \
	X(cuMemAllocPitch_v2, number, library) \
	X(cuMemAllocAsync, number, library) \
	X(cuMemAllocAsync_ptsz, number, library) \
	X(cuMemAllocFromPoolAsync, number, library) \
	X(cuMemAllocFromPoolAsync_ptsz, number, library) \
	X(cuMemAllocManaged, number, library) \
	X(cuMemAllocHost, number, library) \
	X(cuMemAllocHost_v2, number, library) \
	X(cuMemHostAlloc, number, library) \
	X(cuMemHostRegister, number, library) \
	X(cuMemHostRegister_v2, number, library) \
	X(cuArrayCreate, number, library) \
	X(cuArrayCreate_v2, number, library) \
	X(cuArray3DCreate, number, library) \
	X(cuArray3DCreate_v2, number, library) \
	X(cuMipmappedArrayCreate, number, library) \
	X(cuMemCreate, number, library)

#endif
