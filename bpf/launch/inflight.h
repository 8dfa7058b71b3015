/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_INFLIGHT_H
#define GPU_GADGETS_LAUNCH_INFLIGHT_H

#include "launch/apis.h"
#include "launch/windows.h"

/* inflight: state of the calls that a thread is in, for cuda_kernel. */

struct launch_shape {
	__u32 grid[3], block[3];
	__u32 shared_bytes; /* dynamic, of one block */
	__u32 launches;	    /* at once; 1 except in cuLaunchCooperativeKernelMultiDevice */
};

/* The properties of a call. */
struct call_facts {
	__u64 function; /* see launch/names.h; 0: the call has none */
	__u64 stream;	/* 1: the default stream, 2: that of the thread, 0: none */
	__u64 bytes;
	__u64 span;  /* of a trace; 0: none */
	__u64 nodes; /* of a launched graph; 0: not known */
	__s32 device;	 /* CUDA ordinal, -1: unknown */
	__u16 direction; /* enum copy_direction */
	__u16 captured;	 /* 1: captured as a node of a graph, not executed */
	struct launch_shape shape;
};

/* A call of a library; calls of the driver continue inside it. */
struct library_call {
	__u64 process; /* owner of the call: a thread's state survives exec */
	__u64 sp, ip, start_boot_ns;
	__u32 api;
	__u32 pad;
	struct window window;
};

struct inflight {
	__u64 sp; /* at entry; 0: the thread is in no call of the driver */
	__u64 ip; /* of the probe: in the called function */
	__u64 start_boot_ns;
	__u64 argument[CALL_ARGUMENTS]; /* [CALL_NONE] is always 0 */
	__u32 api;
	__u32 pad;
	__u64 stub, stub_sp; /* of the runtime's launch in progress */
	struct call_facts facts;
	struct window window; /* of the call, then of the call that has returned */
	__u32 stub_window;    /* number */
	__u32 pad2;
	struct library_call library;
};

#endif
