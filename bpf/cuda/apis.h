/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CUDA_APIS_H
#define GPU_GADGETS_CUDA_APIS_H

/*
 * apis: the one table of the CUDA driver entry points that decide who
 * holds GPU memory. From it come the eBPF sections, the attach points and the
 * entries of the simulated driver (examples/simcuda), so a new API is one row.
 *
 * The driver, not the runtime, is traced: every cudart, static or shared, and
 * every other framework ends here, so nothing is counted twice.
 *
 * Signatures: CUDA Driver API reference 12.4, cuda.h. Symbols: libcuda 550.163.
 * Plain C macros only: the file is included by eBPF programs and by user space.
 */

/* What a call does. The columns a, b, c below are argument indexes. */
enum cuda_op {
	CUDA_OP_NONE = 0,
	CUDA_ALLOC,	  /* a: address of the pointer; b: size in bytes */
	CUDA_ALLOC_POOL,  /* as CUDA_ALLOC; c: the pool, which knows its device */
	CUDA_ALLOC_PITCH, /* a: address of the pointer; b: address of the pitch; c: height.
			     Size = the pitch that the driver chose × height */
	CUDA_REGISTER,	  /* a: the pointer itself; b: size in bytes */
	CUDA_ARRAY,	  /* a: address of the handle; b: CUDA_ARRAY_DESCRIPTOR * */
	CUDA_ARRAY3D,	  /* a: address of the handle; b: CUDA_ARRAY3D_DESCRIPTOR * */
	CUDA_MIPMAP,	  /* as CUDA_ARRAY3D; c: number of levels */
	CUDA_FREE,	  /* a: the pointer or handle; kind is its name space */
	/* Physical memory lives until it is released and unmapped. */
	CUDA_VMM_CREATE,  /* a: address of the handle; b: size; c: CUmemAllocationProp * */
	CUDA_VMM_IMPORT,  /* a: address of the handle: memory of another process */
	CUDA_VMM_RETAIN,  /* a: address of the handle; b: a mapped address */
	CUDA_VMM_RELEASE, /* a: the handle */
	CUDA_VMM_MAP,	  /* a: address; b: size; c: the handle */
	CUDA_VMM_UNMAP,	  /* a: address; b: size; may cover several mappings */
	/* Which device the thread uses. */
	CUDA_CTX_CREATE,  /* a: address of the context; b: device; becomes current */
	CUDA_CTX_DESTROY, /* a: the context; its memory is freed implicitly */
	CUDA_CTX_SET,	  /* a: the context, 0 for none */
	CUDA_CTX_PUSH,	  /* a: the context */
	CUDA_CTX_POP,	  /* a: address of the popped context, or 0 */
	CUDA_CTX_DEVICE,  /* a: address of the current context's device */
	CUDA_PRIMARY_RETAIN,  /* a: address of the context; b: device */
	CUDA_PRIMARY_RELEASE, /* a: device; the last release resets */
	CUDA_PRIMARY_RESET,   /* a: device; its memory is freed implicitly */
	CUDA_POOL_CREATE, /* a: address of the pool; b: CUmemPoolProps * */
	CUDA_POOL_DEVICE, /* a: address of the pool; b: device */
	/* HIP: a thread has a device and needs no context. */
	CUDA_DEVICE_SET, /* a: the device */
	CUDA_DEVICE_OF,	 /* a: a handle, as of a pool: its device; 0: none, no change */
	CUDA_DEVICE_RESET, /* no arguments: the memory of the thread's device is freed implicitly */
	CUDA_ADDRESS_FREE, /* a: address; b: size: no memory that was mapped there is held */
	CUDA_DEVICE_COUNT, /* a: address of the number of devices that the process has */
};

/* What is held. Also the name space of the pointer or handle. */
enum alloc_kind {
	KIND_NONE = 0,
	KIND_DEVICE,  /* cuMemAlloc, cuMemAllocPitch */
	KIND_MANAGED, /* cuMemAllocManaged */
	KIND_HOST,    /* pinned host memory, allocated or registered */
	KIND_ARRAY,   /* arrays and mipmapped arrays */
	KIND_VMM,     /* physical memory of cuMemCreate */
	KIND_POOL,    /* stream-ordered: cuMemAllocAsync, cuMemAllocFromPoolAsync */
	KIND_TENSOR,  /* a block of PyTorch's pool, inside of what the driver gave it */
	KIND_CONTEXT, /* a context; the driver does not say how large it is: 0 bytes */
	ALLOC_KIND_COUNT,
};

/* As users read them. */
#define ALLOC_KIND_NAMES \
	{ "", "device", "managed", "host", "array", "vmm", "pool", "tensor", "context" }

enum cuda_api_flag {
	/* The first ABI: 32-bit device pointers, sizes and descriptor fields. */
	CUDA_ABI1 = 1,
	/* The pointer belongs to cuMemHostRegister, not to an allocation. */
	CUDA_REGISTERED = 2,
	/* The size is 32-bit, the pointer is not. */
	CUDA_SIZE32 = 4,
	/* HIP: b is a hipChannelFormatDesc *; the extent is in the next arguments. */
	CUDA_CHANNELS = 8,
	/* HIP: the extent is on the stack, by value. */
	CUDA_EXTENT = 16,
};

#ifdef VENDOR_HIP
#include "../hip/apis.h"
#else
/* As in the sections of unmodified ig, which finds it by this name. */
#define DRIVER_LIBRARY libcuda

/* X(symbol, op, kind, flags, a, b, c) */
#define CUDA_PROBED_APIS(X)                                                         \
	X(cuMemAlloc, CUDA_ALLOC, KIND_DEVICE, CUDA_ABI1, 0, 1, 0)                  \
	X(cuMemAlloc_v2, CUDA_ALLOC, KIND_DEVICE, 0, 0, 1, 0)                       \
	X(cuMemAllocPitch, CUDA_ALLOC_PITCH, KIND_DEVICE, CUDA_ABI1, 0, 1, 3)       \
	X(cuMemAllocPitch_v2, CUDA_ALLOC_PITCH, KIND_DEVICE, 0, 0, 1, 3)            \
	X(cuMemFree, CUDA_FREE, KIND_DEVICE, CUDA_ABI1, 0, 0, 0)                    \
	X(cuMemFree_v2, CUDA_FREE, KIND_DEVICE, 0, 0, 0, 0)                         \
	X(cuMemAllocAsync, CUDA_ALLOC, KIND_POOL, 0, 0, 1, 0)                       \
	X(cuMemAllocAsync_ptsz, CUDA_ALLOC, KIND_POOL, 0, 0, 1, 0)                  \
	X(cuMemAllocFromPoolAsync, CUDA_ALLOC_POOL, KIND_POOL, 0, 0, 1, 2)          \
	X(cuMemAllocFromPoolAsync_ptsz, CUDA_ALLOC_POOL, KIND_POOL, 0, 0, 1, 2)     \
	X(cuMemFreeAsync, CUDA_FREE, KIND_POOL, 0, 0, 0, 0)                         \
	X(cuMemFreeAsync_ptsz, CUDA_FREE, KIND_POOL, 0, 0, 0, 0)                    \
	X(cuMemAllocManaged, CUDA_ALLOC, KIND_MANAGED, 0, 0, 1, 0)                  \
	X(cuMemAllocHost, CUDA_ALLOC, KIND_HOST, CUDA_SIZE32, 0, 1, 0)              \
	X(cuMemAllocHost_v2, CUDA_ALLOC, KIND_HOST, 0, 0, 1, 0)                     \
	X(cuMemHostAlloc, CUDA_ALLOC, KIND_HOST, 0, 0, 1, 0)                        \
	X(cuMemFreeHost, CUDA_FREE, KIND_HOST, 0, 0, 0, 0)                          \
	X(cuMemHostRegister, CUDA_REGISTER, KIND_HOST, CUDA_REGISTERED, 0, 1, 0)    \
	X(cuMemHostRegister_v2, CUDA_REGISTER, KIND_HOST, CUDA_REGISTERED, 0, 1, 0) \
	X(cuMemHostUnregister, CUDA_FREE, KIND_HOST, CUDA_REGISTERED, 0, 0, 0)      \
	X(cuArrayCreate, CUDA_ARRAY, KIND_ARRAY, CUDA_ABI1, 0, 1, 0)                \
	X(cuArrayCreate_v2, CUDA_ARRAY, KIND_ARRAY, 0, 0, 1, 0)                     \
	X(cuArray3DCreate, CUDA_ARRAY3D, KIND_ARRAY, CUDA_ABI1, 0, 1, 0)            \
	X(cuArray3DCreate_v2, CUDA_ARRAY3D, KIND_ARRAY, 0, 0, 1, 0)                 \
	X(cuArrayDestroy, CUDA_FREE, KIND_ARRAY, 0, 0, 0, 0)                        \
	X(cuMipmappedArrayCreate, CUDA_MIPMAP, KIND_ARRAY, 0, 0, 1, 2)              \
	X(cuMipmappedArrayDestroy, CUDA_FREE, KIND_ARRAY, 0, 0, 0, 0)               \
	X(cuMemCreate, CUDA_VMM_CREATE, KIND_VMM, 0, 0, 1, 2)                       \
	X(cuMemImportFromShareableHandle, CUDA_VMM_IMPORT, KIND_VMM, 0, 0, 0, 0)    \
	X(cuMemRetainAllocationHandle, CUDA_VMM_RETAIN, KIND_VMM, 0, 0, 1, 0)       \
	X(cuMemRelease, CUDA_VMM_RELEASE, KIND_VMM, 0, 0, 0, 0)                     \
	X(cuMemMap, CUDA_VMM_MAP, KIND_VMM, 0, 0, 1, 3)                             \
	X(cuMemUnmap, CUDA_VMM_UNMAP, KIND_VMM, 0, 0, 1, 0)                         \
	X(cuCtxCreate, CUDA_CTX_CREATE, KIND_CONTEXT, 0, 0, 2, 0)                      \
	X(cuCtxCreate_v2, CUDA_CTX_CREATE, KIND_CONTEXT, 0, 0, 2, 0)                   \
	X(cuCtxCreate_v3, CUDA_CTX_CREATE, KIND_CONTEXT, 0, 0, 4, 0)                   \
	X(cuCtxCreate_v4, CUDA_CTX_CREATE, KIND_CONTEXT, 0, 0, 3, 0)                   \
	X(cuCtxDestroy, CUDA_CTX_DESTROY, KIND_CONTEXT, 0, 0, 0, 0)                    \
	X(cuCtxDestroy_v2, CUDA_CTX_DESTROY, KIND_CONTEXT, 0, 0, 0, 0)                 \
	X(cuCtxSetCurrent, CUDA_CTX_SET, KIND_NONE, 0, 0, 0, 0)                     \
	X(cuCtxPushCurrent, CUDA_CTX_PUSH, KIND_NONE, 0, 0, 0, 0)                   \
	X(cuCtxPushCurrent_v2, CUDA_CTX_PUSH, KIND_NONE, 0, 0, 0, 0)                \
	X(cuCtxPopCurrent, CUDA_CTX_POP, KIND_NONE, 0, 0, 0, 0)                     \
	X(cuCtxPopCurrent_v2, CUDA_CTX_POP, KIND_NONE, 0, 0, 0, 0)                  \
	X(cuDevicePrimaryCtxRetain, CUDA_PRIMARY_RETAIN, KIND_CONTEXT, 0, 0, 1, 0)     \
	X(cuDevicePrimaryCtxRelease, CUDA_PRIMARY_RELEASE, KIND_CONTEXT, 0, 0, 0, 0)   \
	X(cuDevicePrimaryCtxRelease_v2, CUDA_PRIMARY_RELEASE, KIND_CONTEXT, 0, 0, 0, 0) \
	X(cuDevicePrimaryCtxReset, CUDA_PRIMARY_RESET, KIND_CONTEXT, 0, 0, 0, 0)       \
	X(cuDevicePrimaryCtxReset_v2, CUDA_PRIMARY_RESET, KIND_CONTEXT, 0, 0, 0, 0)    \
	X(cuMemPoolCreate, CUDA_POOL_CREATE, KIND_NONE, 0, 0, 1, 0)                 \
	X(cuDeviceGetDefaultMemPool, CUDA_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0)       \
	X(cuDeviceGetMemPool, CUDA_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0)

/* What is probed on demand only: FACT_DEVICE of call/demand.h. */
#define CUDA_DEMAND_APIS(X) X(cuCtxGetDevice, CUDA_CTX_DEVICE, KIND_NONE, 0, 0, 0, 0)

/* The API that answers FACT_DEVICE. */
#define API_DEVICE_ANSWER API_cuCtxGetDevice
#endif

#define CUDA_APIS(X) CUDA_PROBED_APIS(X) CUDA_DEMAND_APIS(X)

/*
 * Libraries between a program and the driver that limit its memory: preloaded, they export the
 * driver's functions, and where their limit is reached they refuse without asking the driver.
 * Known by the name of their file. Gemini's libgemhook ends the process instead.
 */
#define CUDA_INTERPOSERS(X)                                                        \
	X(1, "libvgpu")		/* HAMi-core; also of Volcano */                   \
	X(2, "libvgpu-control") /* vgpu-manager */                                 \
	X(3, "libcuda-control") /* vcuda-controller of GPU Manager */              \
	X(4, "libnvshare")	/* nvshare */

/* What such a library may refuse: all that allocates, with the library's number. */
#define CUDA_INTERPOSED_APIS(X, number, library)                                   \
	X(cuMemAlloc, number, library)                                             \
	X(cuMemAlloc_v2, number, library)                                          \
	X(cuMemAllocPitch, number, library)                                        \
	X(cuMemAllocPitch_v2, number, library)                                     \
	X(cuMemAllocAsync, number, library)                                        \
	X(cuMemAllocAsync_ptsz, number, library)                                   \
	X(cuMemAllocFromPoolAsync, number, library)                                \
	X(cuMemAllocFromPoolAsync_ptsz, number, library)                           \
	X(cuMemAllocManaged, number, library)                                      \
	X(cuMemAllocHost, number, library)                                         \
	X(cuMemAllocHost_v2, number, library)                                      \
	X(cuMemHostAlloc, number, library)                                         \
	X(cuMemHostRegister, number, library)                                      \
	X(cuMemHostRegister_v2, number, library)                                   \
	X(cuArrayCreate, number, library)                                          \
	X(cuArrayCreate_v2, number, library)                                       \
	X(cuArray3DCreate, number, library)                                        \
	X(cuArray3DCreate_v2, number, library)                                     \
	X(cuMipmappedArrayCreate, number, library)                                 \
	X(cuMemCreate, number, library)

/*
 * HIP: physical memory that was mapped takes the GPU's memory until its address range is freed,
 * also when its handle was released and nothing maps it: it is held. Linux 5.10 cannot visit
 * all allocations (cuda/instance.h): there it is freed when it was released and unmapped.
 */
#if defined(VENDOR_HIP) && !defined(LINUX_5_10)
#define MEMORY_HELD
#endif

/* Kernels before 6.0 would need a program for each point; HIP has no such library that we know. */
#if !defined(VENDOR_HIP) && !defined(LINUX_5_10)
#define INTERPOSERS_PROBED
#endif

/* The attach cookie of such a point: its API, and the library's number from bit 8 on. */
#define INTERPOSED(number, api) ((number) << 8 | (api))

/* API_cuMemAlloc_v2 …: the row's number and the attach cookie. 0 is no API. */
enum cuda_api_id {
	API_NONE = 0,
#define X(symbol, op, kind, flags, a, b, c) API_##symbol,
	CUDA_APIS(X)
#undef X
	CUDA_API_COUNT,
};

struct cuda_api {
	unsigned char op, kind, flags, a, b, c;
};

#endif
