/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_INFLIGHT_H
#define GPU_GADGETS_MEMORY_INFLIGHT_H

#include "memory/apis.h"

/* inflight: what cuda_alloc remembers of an allocation, and of a call. */

/*
 * What no other call has: when it began, and where two began at once, a byte of the
 * thread's id. The upper 56 bits are the age of an allocation in user space.
 */
static __always_inline __u64 serial_of(__u64 boot_ns)
{
	return boot_ns << 8 | (bpf_get_current_pid_tgid() & 0xff);
}

/* An allocation that is alive; see memory/live.h for its key. */
struct live {
	__u64 size_bytes;
	__u64 stack;
	__u64 span;    /* of a trace; 0: none */
	__u64 context; /* that owns it, 5.10: its instance; or a device, memory_owner() and
			    context_owner(); or, if MEMORY_HELD, where it was mapped; 0: unknown
			    or none */
	__u64 serial;  /* unique, and its age: serial_of() the call that made it */
	__u64 doom;    /* serial of the context destruction in progress */
	__u8 kind;     /* enum alloc_kind */
	__u8 foreign;  /* VMM: imported, its bytes belong to another process */
	__u16 pad;
	__s32 device;	  /* CUDA ordinal, -1: unknown */
	__u64 handle;	  /* VMM: its newest number; tensor: bytes that were requested of
			     size_bytes, 0: not known (torch/requested.h) */
	__u32 references; /* VMM: 1 while its handle is held, and its mappings; 0: only its
			     address range, MEMORY_HELD;
			     tensor: how many blocks it stands for */
	__u32 owner;	  /* communicator of NCCL: nccl/memory/communicators.h; 0: none */
};

/* A report of PyTorch's allocator; see torch/torch.h. */
struct torch_report {
	__u64 process;
	__u64 pointer;
	__s64 bytes; /* > 0: allocated; < 0: freed; of an OOM: requested */
	__u64 allocated_bytes, reserved_bytes;
	__s32 device;
	__u32 op;	     /* enum torch_op */
	__u64 begin_boot_ns; /* of one whose stack is taken */
};

/* The newest block of a thread, for torch/requested.h, whether or not it is followed. */
struct torch_newest {
	__u64 pointer; /* 0: there is none whose request is to come */
	__u64 bytes;
	__u64 p; /* it is followed, with this probability; 0: it is not */
	__s32 device;
	__u32 pad;
};

/* A call of a library that limits the process, around those of the driver: memory/interposed.h. */
struct interposed {
	__u64 sp, ip, a, b, c, serial; /* as in struct inflight */
	__u32 api;
	__u32 library; /* its number */
	__u32 failed;  /* the driver refused the thread meanwhile */
	__u32 refused; /* number of the library that the row of ooms is about, 0: the driver */
};

/* CUDA_ARRAY3D_DESCRIPTOR; the 2D one has no depth, the first ABI 32-bit sizes. */
struct array_shape {
	__u64 width, height, depth;
	__u32 format, channels;
	__u64 elements; /* sum over the levels walked: texels, or blocks of them */
	__u32 layers;	/* 1: depth counts layers or faces, and stays */
	__u32 block;	/* 2^block texels to a side of a block; 0: not in blocks */
};

enum {
#define X(symbol, op, kind, flags, a, b, c) +(MEMORY_EXTENT_AT(flags) != 0)
	ROWS_WITH_EXTENTS = (0 MEMORY_APIS(X)) > 0, /* whether the vendor's table has such */
#undef X
};

/* Of an allocation whose row has one: memory/extent.h. */
struct extent {
	__u64 width, height, depth;
	__u64 flags; /* of a mipmapped array */
};

struct inflight {
	__u64 sp;      /* at entry; 0: the thread is in no call */
	__u64 ip;      /* of the probe: in the called function */
	__u64 a, b, c; /* the arguments named by the table */
	__u64 serial;  /* unique: serial_of() its entry */
	__u32 api;     /* enum memory_api_id */
	__u32 popped;  /* 1: `live` was taken out for a free that may yet fail */
	struct live live;
	/* A report may come while the thread is in a call of the driver. */
	struct torch_report report;
	struct live tensor;
	struct torch_newest newest;
#ifdef INTERPOSERS_PROBED
	struct interposed interposed;
#endif
	struct extent extent[ROWS_WITH_EXTENTS];
};

#endif
