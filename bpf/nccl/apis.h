/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_APIS_H
#define GPU_GADGETS_NCCL_APIS_H

/*
 * apis: the table of NCCL functions that nccl_trace follows, and of the functions of the
 * CUDA driver that show when a stream has finished. The eBPF sections, the attach points
 * and a test against the real libraries are generated from it, so a new function is one
 * row.
 *
 * Signatures: nccl.h of 2.18 to 2.30; each is also exported as pncclX, at the same
 * address. CUDA Driver API reference 12.4.
 * Plain C macros only: the file is included by eBPF programs and by user space.
 */

/* What a call is. Those up to NCCL_OP_MEM_FREE have rows; append only. */
enum nccl_op {
	NCCL_OP_NONE = 0,
	NCCL_OP_ALL_REDUCE,
	NCCL_OP_BROADCAST,
	NCCL_OP_REDUCE,
	NCCL_OP_ALL_GATHER,
	NCCL_OP_REDUCE_SCATTER,
	NCCL_OP_ALL_TO_ALL,
	NCCL_OP_GATHER,
	NCCL_OP_SCATTER,
	NCCL_OP_SEND,
	NCCL_OP_RECV,
	NCCL_OP_GROUP_END, /* the outermost one, which issues the group's calls */
	NCCL_OP_MEM_ALLOC, /* count: index of the size in bytes */
	NCCL_OP_MEM_FREE,
	NCCL_OP_COUNT,
	/* No rows. `comm` is the address of the new communicator. */
	NCCL_INIT_RANK = 16, /* the id is passed by value: see nccl_unique_id() */
	NCCL_INIT_SCALABLE,
	NCCL_INIT_ALL,
	NCCL_SPLIT,
	NCCL_SHRINK,
	NCCL_FINALIZE,
	NCCL_DESTROY,
	NCCL_ABORT,
	NCCL_GROUP_START,
	NCCL_ASYNC_ERROR,
	NCCL_USER_RANK, /* their result is stored */
	NCCL_USER_COUNT,
	NCCL_USER_DEVICE,
	NCCL_GROUP_SIMULATE_END, /* ends a group, which is not launched */
	/* Of the CUDA driver; a and b are argument indexes. */
	NCCL_CUDA = 32,
	CUDA_STREAM_WAIT,  /* a: stream */
	CUDA_STREAM_QUERY,
	CUDA_EVENT_RECORD, /* a: event; b: stream */
	CUDA_EVENT_WAIT,   /* a: event */
	CUDA_EVENT_QUERY,
	CUDA_STREAM_AFTER, /* cuStreamWaitEvent; a: stream; b: event */
	CUDA_CAPTURE,	   /* a: stream, whose work becomes a graph, until … */
	CUDA_CAPTURED,
	HIP_COPY_WAIT,	   /* a: stream, if the copy waits for it */
	CUDA_COPY_WAIT,	   /* a: none; to the host, of the default stream */
	CUDA_COPY,	   /* a: stream, for which the call may wait: to pageable memory it does */
	CUDA_CONTEXT_WAIT, /* cuCtxSynchronize; a: the context; 0: the current one */
	CUDA_CONTEXT_CREATE, /* a: address of the context; b: device */
	CUDA_CONTEXT_RETAIN, /* as CUDA_CONTEXT_CREATE, of a device's primary one */
	CUDA_CONTEXT_SET,  /* a: the context */
	CUDA_CONTEXT_PUSH,
	CUDA_CONTEXT_POP,
	CUDA_CONTEXT_DEVICE, /* a: address of the current context's device */
	HIP_DEVICE_SET,	     /* a: the device of the thread; HIP has no contexts */
};

/* Names for users: the endings of NCCL's own names. */
#define NCCL_OP_NAMES                                                                    \
	{ "", "AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", \
	  "Gather", "Scatter", "Send", "Recv", "GroupEnd", "MemAlloc", "MemFree" }

/* ncclDataType_t: names, and bytes of an element. */
#define NCCL_TYPE_NAMES                                                                  \
	{ "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32",    \
	  "float64", "bfloat16", "float8e4m3", "float8e5m2" }
#define NCCL_TYPE_BYTES { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 }
#define NCCL_TYPE_COUNT 12

/* ncclRedOp_t; others were made by ncclRedOpCreatePreMulSum. */
#define NCCL_REDUCTION_NAMES { "sum", "prod", "max", "min", "avg" }
#define NCCL_REDUCTION_COUNT 5

/* No such argument. */
#define NCCL_NO 15

/* X(symbol without nccl, op, comm, count, type, reduction, peer or root, stream) */
#define NCCL_APIS(X)                                                                     \
	X(AllReduce, NCCL_OP_ALL_REDUCE, 5, 2, 3, 4, NCCL_NO, 6)                          \
	X(Broadcast, NCCL_OP_BROADCAST, 5, 2, 3, NCCL_NO, 4, 6)                           \
	X(Bcast, NCCL_OP_BROADCAST, 4, 1, 2, NCCL_NO, 3, 5)                               \
	X(Reduce, NCCL_OP_REDUCE, 6, 2, 3, 4, 5, 7)                                       \
	X(AllGather, NCCL_OP_ALL_GATHER, 4, 2, 3, NCCL_NO, NCCL_NO, 5)                    \
	X(ReduceScatter, NCCL_OP_REDUCE_SCATTER, 5, 2, 3, 4, NCCL_NO, 6)                  \
	X(AlltoAll, NCCL_OP_ALL_TO_ALL, 4, 2, 3, NCCL_NO, NCCL_NO, 5)                     \
	X(Gather, NCCL_OP_GATHER, 5, 2, 3, NCCL_NO, 4, 6)                                 \
	X(Scatter, NCCL_OP_SCATTER, 5, 2, 3, NCCL_NO, 4, 6)                               \
	X(Send, NCCL_OP_SEND, 4, 1, 2, NCCL_NO, 3, 5)                                     \
	X(Recv, NCCL_OP_RECV, 4, 1, 2, NCCL_NO, 3, 5)                                     \
	X(GroupStart, NCCL_GROUP_START, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO) \
	X(GroupEnd, NCCL_OP_GROUP_END, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO) \
	X(GroupSimulateEnd, NCCL_GROUP_SIMULATE_END, 0, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO) \
	X(MemAlloc, NCCL_OP_MEM_ALLOC, NCCL_NO, 1, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)    \
	X(MemFree, NCCL_OP_MEM_FREE, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO) \
	X(CommInitRank, NCCL_INIT_RANK, 0, 1, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)         \
	X(CommInitRankConfig, NCCL_INIT_RANK, 0, 1, NCCL_NO, NCCL_NO, NCCL_NO, 3)         \
	X(CommInitRankScalable, NCCL_INIT_SCALABLE, 0, 1, 4, NCCL_NO, 2, 5)               \
	X(CommInitAll, NCCL_INIT_ALL, 0, 1, 2, NCCL_NO, NCCL_NO, NCCL_NO)                 \
	X(CommSplit, NCCL_SPLIT, 0, 1, 2, NCCL_NO, 3, 4)                                  \
	X(CommShrink, NCCL_SHRINK, 0, 2, 1, NCCL_NO, 3, 4)                                \
	X(CommFinalize, NCCL_FINALIZE, 0, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)    \
	X(CommDestroy, NCCL_DESTROY, 0, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)      \
	X(CommAbort, NCCL_ABORT, 0, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)          \
	X(CommGetAsyncError, NCCL_ASYNC_ERROR, 0, 1, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)  \
	X(CommUserRank, NCCL_USER_RANK, 0, 1, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)         \
	X(CommCount, NCCL_USER_COUNT, 0, 1, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)           \
	X(CommCuDevice, NCCL_USER_DEVICE, 0, 1, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)

/*
 * AMD's RCCL (librccl): besides NCCL's, these. rccl.h of 2.21; no variant for Linux 5.10. The
 * counts of ncclAllToAllv are arrays: its operations have no bytes.
 */
#ifdef LINUX_5_10
#define RCCL_APIS(X)
#define RCCL_HIP_PROBED_APIS(X)
#define RCCL_HIP_DEMAND_APIS(X)
#else
#define RCCL_APIS(X)                                                                     \
	X(AllToAll, NCCL_OP_ALL_TO_ALL, 4, 2, 3, NCCL_NO, NCCL_NO, 5)                     \
	X(AllToAllv, NCCL_OP_ALL_TO_ALL, 7, NCCL_NO, 6, NCCL_NO, NCCL_NO, 8)              \
	X(CommInitRankMulti, NCCL_INIT_RANK, 0, 1, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO)

/* As NCCL_CUDA_PROBED_APIS, of libamdhip64. */
#define RCCL_HIP_PROBED_APIS(X)                                         \
	X(hipStreamSynchronize, CUDA_STREAM_WAIT, 0, NCCL_NO, 0)               \
	X(hipStreamSynchronize_spt, CUDA_STREAM_WAIT, 0, NCCL_NO, 1)           \
	X(hipMemcpyWithStream, HIP_COPY_WAIT, 4, NCCL_NO, 0)                   \
	X(hipStreamQuery, CUDA_STREAM_QUERY, 0, NCCL_NO, 0)                    \
	X(hipStreamQuery_spt, CUDA_STREAM_QUERY, 0, NCCL_NO, 1)                \
	X(hipEventRecord, CUDA_EVENT_RECORD, 0, 1, 0)                          \
	X(hipEventRecord_spt, CUDA_EVENT_RECORD, 0, 1, 1)                      \
	X(hipEventRecordWithFlags, CUDA_EVENT_RECORD, 0, 1, 0)                 \
	X(hipEventQuery, CUDA_EVENT_QUERY, 0, NCCL_NO, 0)                      \
	X(hipEventSynchronize, CUDA_EVENT_WAIT, 0, NCCL_NO, 0)                 \
	X(hipStreamWaitEvent, CUDA_STREAM_AFTER, 0, 1, 0)                      \
	X(hipStreamWaitEvent_spt, CUDA_STREAM_AFTER, 0, 1, 1)                  \
	X(hipDeviceSynchronize, CUDA_CONTEXT_WAIT, NCCL_NO, NCCL_NO, 0)        \
	X(hipSetDevice, HIP_DEVICE_SET, 0, NCCL_NO, 0)                         \
	X(hipStreamBeginCapture, CUDA_CAPTURE, 0, NCCL_NO, 0)                  \
	X(hipStreamBeginCapture_spt, CUDA_CAPTURE, 0, NCCL_NO, 1)              \
	X(hipStreamBeginCaptureToGraph, CUDA_CAPTURE, 0, NCCL_NO, 0)           \
	X(hipStreamEndCapture, CUDA_CAPTURED, 0, NCCL_NO, 0)                   \
	X(hipStreamEndCapture_spt, CUDA_CAPTURED, 0, NCCL_NO, 1)

#define RCCL_HIP_DEMAND_APIS(X) X(hipGetDevice, CUDA_CONTEXT_DEVICE, 0, NCCL_NO, 0)
#endif

/* X(symbol, op, a, b, per_thread: stream 0 is the thread's own) */
#define NCCL_CUDA_PROBED_APIS(X)                                        \
	X(cuStreamSynchronize, CUDA_STREAM_WAIT, 0, NCCL_NO, 0)                \
	X(cuStreamSynchronize_ptsz, CUDA_STREAM_WAIT, 0, NCCL_NO, 1)           \
	X(cuMemcpyDtoH_v2, CUDA_COPY_WAIT, NCCL_NO, NCCL_NO, 0)                \
	X(cuMemcpyDtoH_v2_ptds, CUDA_COPY_WAIT, NCCL_NO, NCCL_NO, 1)           \
	X(cuMemcpyDtoHAsync_v2, CUDA_COPY, 3, NCCL_NO, 0)                      \
	X(cuMemcpyDtoHAsync_v2_ptsz, CUDA_COPY, 3, NCCL_NO, 1)                 \
	X(cuStreamQuery, CUDA_STREAM_QUERY, 0, NCCL_NO, 0)                     \
	X(cuStreamQuery_ptsz, CUDA_STREAM_QUERY, 0, NCCL_NO, 1)                \
	X(cuEventRecord, CUDA_EVENT_RECORD, 0, 1, 0)                           \
	X(cuEventRecord_ptsz, CUDA_EVENT_RECORD, 0, 1, 1)                      \
	X(cuEventRecordWithFlags, CUDA_EVENT_RECORD, 0, 1, 0)                  \
	X(cuEventRecordWithFlags_ptsz, CUDA_EVENT_RECORD, 0, 1, 1)             \
	X(cuEventQuery, CUDA_EVENT_QUERY, 0, NCCL_NO, 0)                       \
	X(cuEventSynchronize, CUDA_EVENT_WAIT, 0, NCCL_NO, 0)                  \
	X(cuStreamWaitEvent, CUDA_STREAM_AFTER, 0, 1, 0)                       \
	X(cuStreamWaitEvent_ptsz, CUDA_STREAM_AFTER, 0, 1, 1)                  \
	X(cuCtxSynchronize, CUDA_CONTEXT_WAIT, NCCL_NO, NCCL_NO, 0)            \
	X(cuCtxSynchronize_v2, CUDA_CONTEXT_WAIT, 0, NCCL_NO, 0)               \
	X(cuCtxCreate_v2, CUDA_CONTEXT_CREATE, 0, 2, 0)                        \
	X(cuCtxCreate_v3, CUDA_CONTEXT_CREATE, 0, 4, 0)                        \
	X(cuCtxCreate_v4, CUDA_CONTEXT_CREATE, 0, 3, 0)                        \
	X(cuDevicePrimaryCtxRetain, CUDA_CONTEXT_RETAIN, 0, 1, 0)              \
	X(cuCtxSetCurrent, CUDA_CONTEXT_SET, 0, NCCL_NO, 0)                    \
	X(cuCtxPushCurrent, CUDA_CONTEXT_PUSH, 0, NCCL_NO, 0)                  \
	X(cuCtxPushCurrent_v2, CUDA_CONTEXT_PUSH, 0, NCCL_NO, 0)               \
	X(cuCtxPopCurrent, CUDA_CONTEXT_POP, NCCL_NO, NCCL_NO, 0)              \
	X(cuCtxPopCurrent_v2, CUDA_CONTEXT_POP, NCCL_NO, NCCL_NO, 0)           \
	X(cuStreamBeginCapture, CUDA_CAPTURE, 0, NCCL_NO, 0)                   \
	X(cuStreamBeginCapture_ptsz, CUDA_CAPTURE, 0, NCCL_NO, 1)              \
	X(cuStreamBeginCapture_v2, CUDA_CAPTURE, 0, NCCL_NO, 0)                \
	X(cuStreamBeginCapture_v2_ptsz, CUDA_CAPTURE, 0, NCCL_NO, 1)           \
	X(cuStreamBeginCaptureToGraph, CUDA_CAPTURE, 0, NCCL_NO, 0)            \
	X(cuStreamBeginCaptureToGraph_ptsz, CUDA_CAPTURE, 0, NCCL_NO, 1)       \
	X(cuStreamEndCapture, CUDA_CAPTURED, 0, NCCL_NO, 0)                    \
	X(cuStreamEndCapture_ptsz, CUDA_CAPTURED, 0, NCCL_NO, 1)

/* Functions that are probed on demand only: FACT_DEVICE of call/demand.h. */
#define NCCL_CUDA_DEMAND_APIS(X) X(cuCtxGetDevice, CUDA_CONTEXT_DEVICE, 0, NCCL_NO, 0)

#define NCCL_CUDA_APIS(X) NCCL_CUDA_PROBED_APIS(X) NCCL_CUDA_DEMAND_APIS(X)

/* API_ncclAllReduce …: the row's number and the attach cookie. 0 is none. Not for cuda_alloc,
 * whose own table has the driver's functions (nccl/memory/calls.h). */
#ifndef NCCL_WITHOUT_IDS
enum nccl_api_id {
	NCCL_API_NONE = 0,
#define X(symbol, ...) API_nccl##symbol,
	NCCL_APIS(X)
#undef X
#define X(symbol, ...) API_##symbol,
	NCCL_CUDA_APIS(X)
#undef X
#define X(symbol, ...) API_nccl##symbol,
	RCCL_APIS(X)
#undef X
#define X(symbol, ...) API_##symbol,
	RCCL_HIP_PROBED_APIS(X) RCCL_HIP_DEMAND_APIS(X)
#undef X
	NCCL_API_COUNT,
};
#endif

struct nccl_api {
	unsigned char op, comm, count, type, reduction, peer, stream, per_thread;
};

#endif
