/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_APIS_H
#define GPU_GADGETS_LAUNCH_APIS_H

/*
 * apis: what calls do that give the GPU work, move data, wait for it and name kernels. Which
 * they are is in the vendor's table (call/vendor.h): cuda/launch_apis.h, hip/launch_apis.h. The
 * eBPF sections, the attach points and the entries of the simulated driver are generated from
 * it, as from memory/apis.h; the two tables share no function.
 *
 *   X(symbol, op, detail, flags, a, b)   of the driver
 *   X(library, symbol, op, a)            of the libraries above it
 *   X(symbol, op, a, b)                  of what changes the device of a thread: launch/contexts.h
 *
 * Plain C macros only.
 */
#include "../call/vendor.h"

/* What a call does. The columns a and b are argument indexes. */
enum call_op {
	CALL_OP_NONE = 0,
	CALL_LAUNCH,	   /* a: function; grid, block, shared memory follow; b: stream;
			      detail: enum launch_detail */
	CALL_LAUNCH_EX,	   /* a: function; b: CUlaunchConfig *; detail: enum launch_detail */
	CALL_LAUNCH_MULTI, /* a: CUDA_LAUNCH_PARAMS[]; b: how many; detail: enum launch_detail */
	CALL_GRAPH,	   /* a: CUgraphExec; b: stream */
	CALL_HOST,	   /* a: function of the host; b: stream */
	CALL_COPY,	   /* a: bytes; b: stream; detail: direction, or COPY_KIND() */
	CALL_COPY_2D,	   /* a: CUDA_MEMCPY2D *; b: stream */
	CALL_COPY_3D,	   /* a: a descriptor; b: stream; detail: direction, or 0: that of the
			      descriptor; COPY_SECOND: it is the second of COPY_3D_LAYOUTS */
	CALL_COPY_BATCH,   /* a: address of the bytes of each copy, then how many; b: stream */
	CALL_PREFETCH,	   /* a: bytes, then the device, or, with detail PREFETCH_LOCATION, its
			      location; b: stream */
	CALL_SET,	   /* a: elements; b: stream; detail: bytes of one */
	CALL_SET_2D,	   /* a: width, then height; as CALL_SET */
	CALL_WAIT,	   /* b: stream, or a: event. The thread waits */
	CALL_ORDER,	   /* a: event; b: stream, which waits, not the thread */
	CALL_QUERY,	   /* as CALL_WAIT, without waiting */
	CALL_RECORD,	   /* a: event; b: stream */
	CALL_LOAD,
	CALL_UNLOAD,
	CALL_NAME,	/* a: address of the handle; b: name */
	CALL_NAME_FROM, /* a: address of the function's handle; b: the kernel's */
	CALL_NAME_OF,	/* a: address of the name's address; b: handle */
	CALL_CAPTURE,	/* b: stream, whose calls become nodes of a graph: of a if it is given */
	CALL_CAPTURED,	/* a: address of the graph; b: stream */
	CALL_NEW_GRAPH,	/* a: address of the graph; b: the graph of which it is a copy, if any */
	CALL_INSTANTIATE, /* a: address of the CUgraphExec; b: graph */
	CALL_NODE,	/* b: graph */
	CALL_LIBRARY,	/* a call of a library above the driver: a span */
	CALL_STUB,	/* a: the host's stub of a kernel. Its return is not probed */
	CALL_CONTEXT,	/* the thread's device; see launch/contexts.h. No rows */
	CALL_REGISTER,	/* a: the host's handle of a kernel; a + 2: its name. As CALL_STUB */
	CALL_OP_COUNT,
};

/* As users read them, by enum call_op. CALL_OPERATION_CAPTURED: see call_flag. */
#define CALL_OPERATION_NAMES                                                        \
	{ "", "launch", "launch", "launch", "graph", "host", "copy", "copy", "copy", \
	  "copy", "prefetch", "set", "set", "wait", "order", "query", "record", "load",       \
	  "unload", "name", "name", "name", "capture", "capture", "create",           \
	  "instantiate", "node", "library", "", "", "", }
#define CALL_OPERATION_CAPTURED "captured"

/* Direction of a copy. Arrays are on the device. */
enum copy_direction {
	COPY_NONE = 0,
	COPY_ANY, /* the driver derives it from the addresses */
	COPY_HTOD,
	COPY_DTOH,
	COPY_DTOD,
	COPY_HTOH,
	COPY_PTOP, /* between devices */
	COPY_DIRECTION_COUNT,
};

#define COPY_DIRECTION_NAMES { "", "any", "HtoD", "DtoH", "DtoD", "HtoH", "PtoP" }

/* How a launch has what it launches. */
enum launch_detail {
	LAUNCH_BLOCKS = 0, /* grid and block are three arguments each; the grid is in blocks */
	LAUNCH_ITEMS = 1,  /* the same, but the grid is in work items */
	LAUNCH_HOST = 2,   /* the function is the host's handle of a kernel (CALL_REGISTER); grid and
			      block are by value, in two arguments each: x and y, z. The arguments
			      of the kernel come before the shared memory */
};

/* As detail of a prefetch: it names where to as a location {type, id} by value. */
#define PREFETCH_LOCATION 1

/* As detail: the kind of the copy, of COPY_KINDS, is this argument. */
#define COPY_KIND(argument) (COPY_BY_KIND | (argument) << 4)
#define COPY_KIND_AT(detail) ((detail) >> 4)
#define COPY_BY_KIND 8
#define COPY_SECOND 8

enum call_flag {
	/* The default stream is that of the thread (_ptsz, _ptds). */
	CALL_PER_THREAD = 1,
	/* Of an event: the stream is the one on which it was recorded. */
	CALL_OF_EVENT = 2,
	/* Arguments that lie on the stack are read, as of each CALL_LAUNCH. */
	CALL_ON_STACK = 4,
	/* Of a copy or a set: argument a is a width, argument a + 1 the height. */
	CALL_2D = 8,
	/* With CALL_2D: argument a + 2 is the depth. */
	CALL_3D = 16,
	/* Argument a is the context that is meant; 0: the current one. */
	CALL_OF_CONTEXT = 32,
};

#define CALL_ARGUMENTS 16
#define CALL_NONE 15 /* no such argument: 0 */

#include VENDOR_TABLE(launch_apis.h)

#define DRIVER_CALLS(X) LAUNCH_CALLS(X) COPY_CALLS(X) OTHER_CALLS(X)

/* API_cuLaunchKernel …: the row's number and the attach cookie. 0 is no API. */
enum call_api_id {
	CALL_API_NONE = 0,
#define X(symbol, op, detail, flags, a, b) API_##symbol,
	DRIVER_CALLS(X)
#undef X
	DRIVER_CALL_END, /* the next enumerator has the same number */
	DRIVER_CALL_LAST = DRIVER_CALL_END - 1,
#define X(library, symbol, op, a) API_##symbol,
	LIBRARY_CALLS(X)
#undef X
	CALL_API_COUNT,
};

struct call_api {
	unsigned char op, detail, flags, a, b;
};

#endif
