/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_APIS_H
#define GPU_GADGETS_MEMORY_APIS_H

/*
 * apis: what the functions of a vendor's driver do that decide who holds GPU memory. Which
 * functions these are is in the vendor's table (call/vendor.h): cuda/apis.h, hip/apis.h. From it
 * come the eBPF sections, the attach points and the entries of the simulated driver
 * (examples/simcuda, examples/simhip), so a new API is one row:
 *
 *   X(symbol, op, kind, flags, a, b, c)
 *
 * Plain C macros only: the file is included by eBPF programs and by user space.
 */
#include "../call/vendor.h"

/* What a call does. The columns a, b, c below are argument indexes. */
enum memory_op {
	MEMORY_OP_NONE = 0,
	MEMORY_ALLOC,	  /* a: address of the pointer; b: size in bytes */
	MEMORY_ALLOC_POOL,  /* as MEMORY_ALLOC; c: the pool, which knows its device */
	MEMORY_ALLOC_PITCH, /* a: address of the pointer; b: address of the pitch; c: height.
			     Size = the pitch that the driver chose × height. With an extent:
			     the pitch follows the pointer; × height × depth */
	MEMORY_REGISTER,	  /* a: the pointer itself; b: size in bytes */
	MEMORY_ARRAY,	  /* a: address of the handle; b: CUDA_ARRAY_DESCRIPTOR * */
	MEMORY_ARRAY3D,	  /* a: address of the handle; b: CUDA_ARRAY3D_DESCRIPTOR * */
	MEMORY_MIPMAP,	  /* as MEMORY_ARRAY3D; c: number of levels; with an extent, then flags */
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
	MEMORY_POOL_LOCATION, /* a: address of the pool; b: CUmemLocation * */
	/* Where a thread has a device and needs no context. */
	MEMORY_DEVICE_SET, /* a: the device */
	MEMORY_DEVICE_OF,	 /* a: a handle, as of a pool: its device; 0: none, no change */
	MEMORY_DEVICE_RESET, /* no arguments: the memory of the thread's device is freed implicitly */
	MEMORY_ADDRESS_FREE, /* a: address; b: size: no memory that was mapped there is held */
	MEMORY_DEVICE_COUNT, /* a: address of the number of devices that the process has */
};

/* Flags of the attach point of a function with this op: those before MEMORY_FREE allocate. */
#define MEMORY_ATTACH(op) \
	(ATTACH_EXIT | ((op) < MEMORY_FREE || (op) == MEMORY_VMM_CREATE ? ATTACH_LAST : 0))

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
	/* Of an array: b is the address of the bits of its channels x, y, z and w. */
	MEMORY_CHANNELS = 8,
};

/*
 * A flag, too: the extent of the allocation begins at this argument: a width and a height, or,
 * from the first argument on the stack on, width, height and depth by value.
 */
#define MEMORY_EXTENT(argument) ((argument) << 4)
#define MEMORY_EXTENT_AT(flags) ((flags) >> 4) /* 0: it has none */

#include VENDOR_TABLE(apis.h)

#define MEMORY_APIS(X) MEMORY_PROBED_APIS(X) MEMORY_DEMAND_APIS(X)

/*
 * Whether memory that was mapped is held by its address range. Linux 5.10 cannot visit all
 * allocations (memory/instance.h): there it is freed when it was released and unmapped.
 */
#ifdef LINUX_5_10
#define MEMORY_HELD 0
#else
#define MEMORY_HELD ADDRESSES_HOLD_MEMORY
#endif

/*
 * Libraries between a program and the driver that limit its memory, where the vendor's table has
 * such (INTERPOSERS). Kernels before 6.0 would need a program for each point.
 */
#if defined(INTERPOSERS) && !defined(LINUX_5_10)
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
