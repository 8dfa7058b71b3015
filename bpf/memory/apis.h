/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_APIS_H
#define GPU_GADGETS_MEMORY_APIS_H

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
enum memory_op {
	MEMORY_OP_NONE = 0,
	MEMORY_ALLOC,	  /* a: address of the pointer; b: size in bytes */
	MEMORY_ALLOC_POOL,  /* as MEMORY_ALLOC; c: the pool, which knows its device */
	MEMORY_ALLOC_PITCH, /* a: address of the pointer; b: address of the pitch; c: height.
			     Size = the pitch that the driver chose × height */
	MEMORY_REGISTER,	  /* a: the pointer itself; b: size in bytes */
	MEMORY_ARRAY,	  /* a: address of the handle; b: CUDA_ARRAY_DESCRIPTOR * */
	MEMORY_ARRAY3D,	  /* a: address of the handle; b: CUDA_ARRAY3D_DESCRIPTOR * */
	MEMORY_MIPMAP,	  /* as MEMORY_ARRAY3D; c: number of levels */
	MEMORY_FREE,	  /* a: the pointer or handle; kind is its name space */
	/* Physical memory lives until it is released and unmapped. */
	MEMORY_VMM_CREATE,  /* a: address of the handle; b: size; c: CUmemAllocationProp * */
	MEMORY_VMM_IMPORT,  /* a: address of the handle: memory of another process */
	MEMORY_VMM_RETAIN,  /* a: address of the handle; b: a mapped address */
	MEMORY_VMM_RELEASE, /* a: the handle */
	MEMORY_VMM_MAP,	  /* a: address; b: size; c: the handle */
	MEMORY_VMM_UNMAP,	  /* a: address; b: size; may cover several mappings */
	/* Which device the thread uses. */
	MEMORY_CTX_CREATE,  /* a: address of the context; b: device; becomes current */
	MEMORY_CTX_DESTROY, /* a: the context; its memory is freed implicitly */
	MEMORY_CTX_SET,	  /* a: the context, 0 for none */
	MEMORY_CTX_PUSH,	  /* a: the context */
	MEMORY_CTX_POP,	  /* a: address of the popped context, or 0 */
	MEMORY_CTX_DEVICE,  /* a: address of the current context's device */
	MEMORY_PRIMARY_RETAIN,  /* a: address of the context; b: device */
	MEMORY_PRIMARY_RELEASE, /* a: device; the last release resets */
	MEMORY_PRIMARY_RESET,   /* a: device; its memory is freed implicitly */
	MEMORY_POOL_CREATE, /* a: address of the pool; b: CUmemPoolProps * */
	MEMORY_POOL_DEVICE, /* a: address of the pool; b: device */
	/* HIP: a thread has a device and needs no context. */
	MEMORY_DEVICE_SET, /* a: the device */
	MEMORY_DEVICE_OF,	 /* a: a handle, as of a pool: its device; 0: none, no change */
	MEMORY_DEVICE_RESET, /* no arguments: the memory of the thread's device is freed implicitly */
	MEMORY_ADDRESS_FREE, /* a: address; b: size: no memory that was mapped there is held */
	MEMORY_DEVICE_COUNT, /* a: address of the number of devices that the process has */
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

enum memory_api_flag {
	/* The first ABI: 32-bit device pointers, sizes and descriptor fields. */
	MEMORY_ABI1 = 1,
	/* The pointer belongs to cuMemHostRegister, not to an allocation. */
	MEMORY_REGISTERED = 2,
	/* The size is 32-bit, the pointer is not. */
	MEMORY_SIZE32 = 4,
	/* HIP: b is a hipChannelFormatDesc *; the extent is in the next arguments. */
	MEMORY_CHANNELS = 8,
	/* HIP: the extent is on the stack, by value. */
	MEMORY_EXTENT = 16,
};

#ifdef VENDOR_HIP
#include "../hip/apis.h"
#else
/* As in the sections of unmodified ig, which finds it by this name. */
#define DRIVER_LIBRARY libcuda

/* X(symbol, op, kind, flags, a, b, c) */
#define MEMORY_PROBED_APIS(X)                                                         \
	X(cuMemAlloc, MEMORY_ALLOC, KIND_DEVICE, MEMORY_ABI1, 0, 1, 0)                  \
	X(cuMemAlloc_v2, MEMORY_ALLOC, KIND_DEVICE, 0, 0, 1, 0)                       \
	X(cuMemAllocPitch, MEMORY_ALLOC_PITCH, KIND_DEVICE, MEMORY_ABI1, 0, 1, 3)       \
	X(cuMemAllocPitch_v2, MEMORY_ALLOC_PITCH, KIND_DEVICE, 0, 0, 1, 3)            \
	X(cuMemFree, MEMORY_FREE, KIND_DEVICE, MEMORY_ABI1, 0, 0, 0)                    \
	X(cuMemFree_v2, MEMORY_FREE, KIND_DEVICE, 0, 0, 0, 0)                         \
	X(cuMemAllocAsync, MEMORY_ALLOC, KIND_POOL, 0, 0, 1, 0)                       \
	X(cuMemAllocAsync_ptsz, MEMORY_ALLOC, KIND_POOL, 0, 0, 1, 0)                  \
	X(cuMemAllocFromPoolAsync, MEMORY_ALLOC_POOL, KIND_POOL, 0, 0, 1, 2)          \
	X(cuMemAllocFromPoolAsync_ptsz, MEMORY_ALLOC_POOL, KIND_POOL, 0, 0, 1, 2)     \
	X(cuMemFreeAsync, MEMORY_FREE, KIND_POOL, 0, 0, 0, 0)                         \
	X(cuMemFreeAsync_ptsz, MEMORY_FREE, KIND_POOL, 0, 0, 0, 0)                    \
	X(cuMemAllocManaged, MEMORY_ALLOC, KIND_MANAGED, 0, 0, 1, 0)                  \
	X(cuMemAllocHost, MEMORY_ALLOC, KIND_HOST, MEMORY_SIZE32, 0, 1, 0)              \
	X(cuMemAllocHost_v2, MEMORY_ALLOC, KIND_HOST, 0, 0, 1, 0)                     \
	X(cuMemHostAlloc, MEMORY_ALLOC, KIND_HOST, 0, 0, 1, 0)                        \
	X(cuMemFreeHost, MEMORY_FREE, KIND_HOST, 0, 0, 0, 0)                          \
	X(cuMemHostRegister, MEMORY_REGISTER, KIND_HOST, MEMORY_REGISTERED, 0, 1, 0)    \
	X(cuMemHostRegister_v2, MEMORY_REGISTER, KIND_HOST, MEMORY_REGISTERED, 0, 1, 0) \
	X(cuMemHostUnregister, MEMORY_FREE, KIND_HOST, MEMORY_REGISTERED, 0, 0, 0)      \
	X(cuArrayCreate, MEMORY_ARRAY, KIND_ARRAY, MEMORY_ABI1, 0, 1, 0)                \
	X(cuArrayCreate_v2, MEMORY_ARRAY, KIND_ARRAY, 0, 0, 1, 0)                     \
	X(cuArray3DCreate, MEMORY_ARRAY3D, KIND_ARRAY, MEMORY_ABI1, 0, 1, 0)            \
	X(cuArray3DCreate_v2, MEMORY_ARRAY3D, KIND_ARRAY, 0, 0, 1, 0)                 \
	X(cuArrayDestroy, MEMORY_FREE, KIND_ARRAY, 0, 0, 0, 0)                        \
	X(cuMipmappedArrayCreate, MEMORY_MIPMAP, KIND_ARRAY, 0, 0, 1, 2)              \
	X(cuMipmappedArrayDestroy, MEMORY_FREE, KIND_ARRAY, 0, 0, 0, 0)               \
	X(cuMemCreate, MEMORY_VMM_CREATE, KIND_VMM, 0, 0, 1, 2)                       \
	X(cuMemImportFromShareableHandle, MEMORY_VMM_IMPORT, KIND_VMM, 0, 0, 0, 0)    \
	X(cuMemRetainAllocationHandle, MEMORY_VMM_RETAIN, KIND_VMM, 0, 0, 1, 0)       \
	X(cuMemRelease, MEMORY_VMM_RELEASE, KIND_VMM, 0, 0, 0, 0)                     \
	X(cuMemMap, MEMORY_VMM_MAP, KIND_VMM, 0, 0, 1, 3)                             \
	X(cuMemUnmap, MEMORY_VMM_UNMAP, KIND_VMM, 0, 0, 1, 0)                         \
	X(cuCtxCreate, MEMORY_CTX_CREATE, KIND_CONTEXT, 0, 0, 2, 0)                      \
	X(cuCtxCreate_v2, MEMORY_CTX_CREATE, KIND_CONTEXT, 0, 0, 2, 0)                   \
	X(cuCtxCreate_v3, MEMORY_CTX_CREATE, KIND_CONTEXT, 0, 0, 4, 0)                   \
	X(cuCtxCreate_v4, MEMORY_CTX_CREATE, KIND_CONTEXT, 0, 0, 3, 0)                   \
	X(cuCtxDestroy, MEMORY_CTX_DESTROY, KIND_CONTEXT, 0, 0, 0, 0)                    \
	X(cuCtxDestroy_v2, MEMORY_CTX_DESTROY, KIND_CONTEXT, 0, 0, 0, 0)                 \
	X(cuCtxSetCurrent, MEMORY_CTX_SET, KIND_NONE, 0, 0, 0, 0)                     \
	X(cuCtxPushCurrent, MEMORY_CTX_PUSH, KIND_NONE, 0, 0, 0, 0)                   \
	X(cuCtxPushCurrent_v2, MEMORY_CTX_PUSH, KIND_NONE, 0, 0, 0, 0)                \
	X(cuCtxPopCurrent, MEMORY_CTX_POP, KIND_NONE, 0, 0, 0, 0)                     \
	X(cuCtxPopCurrent_v2, MEMORY_CTX_POP, KIND_NONE, 0, 0, 0, 0)                  \
	X(cuDevicePrimaryCtxRetain, MEMORY_PRIMARY_RETAIN, KIND_CONTEXT, 0, 0, 1, 0)     \
	X(cuDevicePrimaryCtxRelease, MEMORY_PRIMARY_RELEASE, KIND_CONTEXT, 0, 0, 0, 0)   \
	X(cuDevicePrimaryCtxRelease_v2, MEMORY_PRIMARY_RELEASE, KIND_CONTEXT, 0, 0, 0, 0) \
	X(cuDevicePrimaryCtxReset, MEMORY_PRIMARY_RESET, KIND_CONTEXT, 0, 0, 0, 0)       \
	X(cuDevicePrimaryCtxReset_v2, MEMORY_PRIMARY_RESET, KIND_CONTEXT, 0, 0, 0, 0)    \
	X(cuMemPoolCreate, MEMORY_POOL_CREATE, KIND_NONE, 0, 0, 1, 0)                 \
	X(cuDeviceGetDefaultMemPool, MEMORY_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0)       \
	X(cuDeviceGetMemPool, MEMORY_POOL_DEVICE, KIND_NONE, 0, 0, 1, 0)

/* What is probed on demand only: FACT_DEVICE of call/demand.h. */
#define MEMORY_DEMAND_APIS(X) X(cuCtxGetDevice, MEMORY_CTX_DEVICE, KIND_NONE, 0, 0, 0, 0)

/* The API that answers FACT_DEVICE. */
#define API_DEVICE_ANSWER API_cuCtxGetDevice
#endif

#define MEMORY_APIS(X) MEMORY_PROBED_APIS(X) MEMORY_DEMAND_APIS(X)

/*
 * Libraries between a program and the driver that limit its memory: preloaded, they export the
 * driver's functions, and where their limit is reached they refuse without asking the driver.
 * Known by the name of their file. Gemini's libgemhook ends the process instead.
 */
#define INTERPOSERS(X)                                                        \
	X(1, "libvgpu")		/* HAMi-core; also of Volcano */                   \
	X(2, "libvgpu-control") /* vgpu-manager */                                 \
	X(3, "libcuda-control") /* vcuda-controller of GPU Manager */              \
	X(4, "libnvshare")	/* nvshare */

/* What such a library may refuse: all that allocates, with the library's number. */
#define INTERPOSED_APIS(X, number, library)                                   \
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
 * all allocations (memory/instance.h): there it is freed when it was released and unmapped.
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
enum memory_api_id {
	API_NONE = 0,
#define X(symbol, op, kind, flags, a, b, c) API_##symbol,
	MEMORY_APIS(X)
#undef X
	MEMORY_API_COUNT,
};

struct memory_api {
	unsigned char op, kind, flags, a, b, c;
};

#endif
