/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_APIS_H
#define GPU_GADGETS_LAUNCH_APIS_H

/*
 * apis: the table of calls that give the GPU work, move data, wait for it and name
 * kernels. The eBPF sections, the attach points and the entries of the simulated driver
 * are generated from it, as from memory/apis.h; the two tables share no function.
 *
 * Signatures: CUDA Driver API reference 12.4, cuda.h; cuBLAS, cuBLASLt and cuDNN 9.
 * Symbols: libcuda 535.261; cuFuncGetName, cuKernelGetName and cuGraphAddNode_v2 came
 * later. The first ABI (before CUDA 3.2) is not covered. Plain C macros only.
 */

/* What a call does. The columns a and b are argument indexes. */
enum call_op {
	CALL_OP_NONE = 0,
	CALL_LAUNCH,	   /* a: function; grid, block, shared memory follow; b: stream */
	CALL_LAUNCH_EX,	   /* a: function; b: CUlaunchConfig * */
	CALL_LAUNCH_MULTI, /* a: CUDA_LAUNCH_PARAMS[]; b: how many */
	CALL_GRAPH,	   /* a: CUgraphExec; b: stream */
	CALL_HOST,	   /* a: function of the host; b: stream */
	CALL_COPY,	   /* a: bytes; b: stream; detail: direction */
	CALL_COPY_2D,	   /* a: CUDA_MEMCPY2D *; b: stream */
	CALL_COPY_3D,	   /* a: CUDA_MEMCPY3D(_PEER) *; b: stream; detail: direction, or 0 */
	CALL_PREFETCH,	   /* a: bytes, then the device; b: stream */
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
	CALL_CAPTURE,	/* b: stream, whose calls become nodes of a graph */
	CALL_CAPTURED,	/* a: address of the graph; b: stream */
	CALL_INSTANTIATE, /* a: address of the CUgraphExec; b: graph */
	CALL_NODE,	/* b: graph */
	CALL_LIBRARY,	/* a call of a library above the driver: a span */
	CALL_STUB,	/* a: the host's stub of a kernel. Its return is not probed */
	CALL_CONTEXT,	/* the thread's device; see launch/contexts.h. No rows */
	CALL_OP_COUNT,
};

/* As users read them, by enum call_op. CALL_OPERATION_CAPTURED: see call_flag. */
#define CALL_OPERATION_NAMES                                                        \
	{ "", "launch", "launch", "launch", "graph", "host", "copy", "copy", "copy", \
	  "prefetch", "set", "set", "wait", "order", "query", "record", "load",       \
	  "unload", "name", "name", "name", "capture", "capture", "instantiate",      \
	  "node", "library", "", "", }
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

enum call_flag {
	/* The default stream is that of the thread (_ptsz, _ptds). */
	CALL_PER_THREAD = 1,
	/* Of an event: the stream is the one on which it was recorded. */
	CALL_OF_EVENT = 2,
};

#define CALL_ARGUMENTS 16
#define CALL_NONE 15 /* no such argument: 0 */

#ifdef VENDOR_HIP
#include "../hip/launch_apis.h"
#else
#define DRIVER_LIBRARY libcuda
#define API_DEVICE_ANSWER API_cuCtxGetDevice
/* The launch that is followed in windows if any is. */
#define API_LAUNCH_USUAL API_cuLaunchKernel

/* X(symbol, op, detail, flags, a, b), of libcuda */
#define LAUNCH_CALLS(X)                                                            \
	X(cuLaunchKernel, CALL_LAUNCH, 0, 0, 0, 8)                                 \
	X(cuLaunchKernel_ptsz, CALL_LAUNCH, 0, CALL_PER_THREAD, 0, 8)              \
	X(cuLaunchKernelEx, CALL_LAUNCH_EX, 0, 0, 1, 0)                            \
	X(cuLaunchKernelEx_ptsz, CALL_LAUNCH_EX, 0, CALL_PER_THREAD, 1, 0)         \
	X(cuLaunchCooperativeKernel, CALL_LAUNCH, 0, 0, 0, 8)                      \
	X(cuLaunchCooperativeKernel_ptsz, CALL_LAUNCH, 0, CALL_PER_THREAD, 0, 8)   \
	X(cuLaunchCooperativeKernelMultiDevice, CALL_LAUNCH_MULTI, 0, 0, 0, 1)     \
	X(cuGraphLaunch, CALL_GRAPH, 0, 0, 0, 1)                                   \
	X(cuGraphLaunch_ptsz, CALL_GRAPH, 0, CALL_PER_THREAD, 0, 1)                \
	X(cuLaunchHostFunc, CALL_HOST, 0, 0, 1, 0)                                 \
	X(cuLaunchHostFunc_ptsz, CALL_HOST, 0, CALL_PER_THREAD, 1, 0)

#define COPY_CALLS(X)                                                              \
	X(cuMemcpy, CALL_COPY, COPY_ANY, 0, 2, CALL_NONE)                          \
	X(cuMemcpy_ptds, CALL_COPY, COPY_ANY, CALL_PER_THREAD, 2, CALL_NONE)       \
	X(cuMemcpyHtoD_v2, CALL_COPY, COPY_HTOD, 0, 2, CALL_NONE)                  \
	X(cuMemcpyHtoD_v2_ptds, CALL_COPY, COPY_HTOD, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemcpyDtoH_v2, CALL_COPY, COPY_DTOH, 0, 2, CALL_NONE)                  \
	X(cuMemcpyDtoH_v2_ptds, CALL_COPY, COPY_DTOH, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemcpyDtoD_v2, CALL_COPY, COPY_DTOD, 0, 2, CALL_NONE)                  \
	X(cuMemcpyDtoD_v2_ptds, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemcpyHtoA_v2, CALL_COPY, COPY_HTOD, 0, 3, CALL_NONE)                  \
	X(cuMemcpyHtoA_v2_ptds, CALL_COPY, COPY_HTOD, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemcpyAtoH_v2, CALL_COPY, COPY_DTOH, 0, 3, CALL_NONE)                  \
	X(cuMemcpyAtoH_v2_ptds, CALL_COPY, COPY_DTOH, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemcpyDtoA_v2, CALL_COPY, COPY_DTOD, 0, 3, CALL_NONE)                  \
	X(cuMemcpyDtoA_v2_ptds, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemcpyAtoD_v2, CALL_COPY, COPY_DTOD, 0, 3, CALL_NONE)                  \
	X(cuMemcpyAtoD_v2_ptds, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemcpyAtoA_v2, CALL_COPY, COPY_DTOD, 0, 4, CALL_NONE)                  \
	X(cuMemcpyAtoA_v2_ptds, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 4, CALL_NONE) \
	X(cuMemcpyPeer, CALL_COPY, COPY_PTOP, 0, 4, CALL_NONE)                     \
	X(cuMemcpyPeer_ptds, CALL_COPY, COPY_PTOP, CALL_PER_THREAD, 4, CALL_NONE)  \
	X(cuMemcpyAsync, CALL_COPY, COPY_ANY, 0, 2, 3)                             \
	X(cuMemcpyAsync_ptsz, CALL_COPY, COPY_ANY, CALL_PER_THREAD, 2, 3)          \
	X(cuMemcpyHtoDAsync_v2, CALL_COPY, COPY_HTOD, 0, 2, 3)                     \
	X(cuMemcpyHtoDAsync_v2_ptsz, CALL_COPY, COPY_HTOD, CALL_PER_THREAD, 2, 3)  \
	X(cuMemcpyDtoHAsync_v2, CALL_COPY, COPY_DTOH, 0, 2, 3)                     \
	X(cuMemcpyDtoHAsync_v2_ptsz, CALL_COPY, COPY_DTOH, CALL_PER_THREAD, 2, 3)  \
	X(cuMemcpyDtoDAsync_v2, CALL_COPY, COPY_DTOD, 0, 2, 3)                     \
	X(cuMemcpyDtoDAsync_v2_ptsz, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 2, 3)  \
	X(cuMemcpyHtoAAsync_v2, CALL_COPY, COPY_HTOD, 0, 3, 4)                     \
	X(cuMemcpyHtoAAsync_v2_ptsz, CALL_COPY, COPY_HTOD, CALL_PER_THREAD, 3, 4)  \
	X(cuMemcpyAtoHAsync_v2, CALL_COPY, COPY_DTOH, 0, 3, 4)                     \
	X(cuMemcpyAtoHAsync_v2_ptsz, CALL_COPY, COPY_DTOH, CALL_PER_THREAD, 3, 4)  \
	X(cuMemcpyPeerAsync, CALL_COPY, COPY_PTOP, 0, 4, 5)                        \
	X(cuMemcpyPeerAsync_ptsz, CALL_COPY, COPY_PTOP, CALL_PER_THREAD, 4, 5)     \
	X(cuMemcpy2D_v2, CALL_COPY_2D, 0, 0, 0, CALL_NONE)                         \
	X(cuMemcpy2D_v2_ptds, CALL_COPY_2D, 0, CALL_PER_THREAD, 0, CALL_NONE)      \
	X(cuMemcpy2DUnaligned_v2, CALL_COPY_2D, 0, 0, 0, CALL_NONE)                \
	X(cuMemcpy2DUnaligned_v2_ptds, CALL_COPY_2D, 0, CALL_PER_THREAD, 0, CALL_NONE) \
	X(cuMemcpy2DAsync_v2, CALL_COPY_2D, 0, 0, 0, 1)                            \
	X(cuMemcpy2DAsync_v2_ptsz, CALL_COPY_2D, 0, CALL_PER_THREAD, 0, 1)         \
	X(cuMemcpy3D_v2, CALL_COPY_3D, 0, 0, 0, CALL_NONE)                         \
	X(cuMemcpy3D_v2_ptds, CALL_COPY_3D, 0, CALL_PER_THREAD, 0, CALL_NONE)      \
	X(cuMemcpy3DAsync_v2, CALL_COPY_3D, 0, 0, 0, 1)                            \
	X(cuMemcpy3DAsync_v2_ptsz, CALL_COPY_3D, 0, CALL_PER_THREAD, 0, 1)         \
	X(cuMemcpy3DPeer, CALL_COPY_3D, COPY_PTOP, 0, 0, CALL_NONE)                \
	X(cuMemcpy3DPeer_ptds, CALL_COPY_3D, COPY_PTOP, CALL_PER_THREAD, 0, CALL_NONE) \
	X(cuMemcpy3DPeerAsync, CALL_COPY_3D, COPY_PTOP, 0, 0, 1)                   \
	X(cuMemcpy3DPeerAsync_ptsz, CALL_COPY_3D, COPY_PTOP, CALL_PER_THREAD, 0, 1) \
	X(cuMemPrefetchAsync, CALL_PREFETCH, 0, 0, 1, 3)                           \
	X(cuMemPrefetchAsync_ptsz, CALL_PREFETCH, 0, CALL_PER_THREAD, 1, 3)        \
	X(cuMemsetD8_v2, CALL_SET, 1, 0, 2, CALL_NONE)                             \
	X(cuMemsetD8_v2_ptds, CALL_SET, 1, CALL_PER_THREAD, 2, CALL_NONE)          \
	X(cuMemsetD8Async, CALL_SET, 1, 0, 2, 3)                                   \
	X(cuMemsetD8Async_ptsz, CALL_SET, 1, CALL_PER_THREAD, 2, 3)                \
	X(cuMemsetD2D8_v2, CALL_SET_2D, 1, 0, 3, CALL_NONE)                        \
	X(cuMemsetD2D8_v2_ptds, CALL_SET_2D, 1, CALL_PER_THREAD, 3, CALL_NONE)     \
	X(cuMemsetD2D8Async, CALL_SET_2D, 1, 0, 3, 5)                              \
	X(cuMemsetD2D8Async_ptsz, CALL_SET_2D, 1, CALL_PER_THREAD, 3, 5)           \
	X(cuMemsetD16_v2, CALL_SET, 2, 0, 2, CALL_NONE)                            \
	X(cuMemsetD16_v2_ptds, CALL_SET, 2, CALL_PER_THREAD, 2, CALL_NONE)         \
	X(cuMemsetD16Async, CALL_SET, 2, 0, 2, 3)                                  \
	X(cuMemsetD16Async_ptsz, CALL_SET, 2, CALL_PER_THREAD, 2, 3)               \
	X(cuMemsetD2D16_v2, CALL_SET_2D, 2, 0, 3, CALL_NONE)                       \
	X(cuMemsetD2D16_v2_ptds, CALL_SET_2D, 2, CALL_PER_THREAD, 3, CALL_NONE)    \
	X(cuMemsetD2D16Async, CALL_SET_2D, 2, 0, 3, 5)                             \
	X(cuMemsetD2D16Async_ptsz, CALL_SET_2D, 2, CALL_PER_THREAD, 3, 5)          \
	X(cuMemsetD32_v2, CALL_SET, 4, 0, 2, CALL_NONE)                            \
	X(cuMemsetD32_v2_ptds, CALL_SET, 4, CALL_PER_THREAD, 2, CALL_NONE)         \
	X(cuMemsetD32Async, CALL_SET, 4, 0, 2, 3)                                  \
	X(cuMemsetD32Async_ptsz, CALL_SET, 4, CALL_PER_THREAD, 2, 3)               \
	X(cuMemsetD2D32_v2, CALL_SET_2D, 4, 0, 3, CALL_NONE)                       \
	X(cuMemsetD2D32_v2_ptds, CALL_SET_2D, 4, CALL_PER_THREAD, 3, CALL_NONE)    \
	X(cuMemsetD2D32Async, CALL_SET_2D, 4, 0, 3, 5)                             \
	X(cuMemsetD2D32Async_ptsz, CALL_SET_2D, 4, CALL_PER_THREAD, 3, 5)

#define OTHER_CALLS(X)                                                             \
	X(cuStreamSynchronize, CALL_WAIT, 0, 0, CALL_NONE, 0)                      \
	X(cuStreamSynchronize_ptsz, CALL_WAIT, 0, CALL_PER_THREAD, CALL_NONE, 0)   \
	X(cuCtxSynchronize, CALL_WAIT, 0, 0, CALL_NONE, CALL_NONE)                 \
	X(cuEventSynchronize, CALL_WAIT, 0, CALL_OF_EVENT, 0, CALL_NONE)           \
	X(cuStreamWaitEvent, CALL_ORDER, 0, 0, 1, 0)                               \
	X(cuStreamWaitEvent_ptsz, CALL_ORDER, 0, CALL_PER_THREAD, 1, 0)            \
	X(cuStreamQuery, CALL_QUERY, 0, 0, CALL_NONE, 0)                           \
	X(cuStreamQuery_ptsz, CALL_QUERY, 0, CALL_PER_THREAD, CALL_NONE, 0)        \
	X(cuEventQuery, CALL_QUERY, 0, CALL_OF_EVENT, 0, CALL_NONE)                \
	X(cuEventRecord, CALL_RECORD, 0, 0, 0, 1)                                  \
	X(cuEventRecord_ptsz, CALL_RECORD, 0, CALL_PER_THREAD, 0, 1)               \
	X(cuEventRecordWithFlags, CALL_RECORD, 0, 0, 0, 1)                         \
	X(cuEventRecordWithFlags_ptsz, CALL_RECORD, 0, CALL_PER_THREAD, 0, 1)      \
	X(cuModuleLoad, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE)                     \
	X(cuModuleLoadData, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE)                 \
	X(cuModuleLoadDataEx, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE)               \
	X(cuModuleLoadFatBinary, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE)            \
	X(cuLibraryLoadData, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE)                \
	X(cuLibraryLoadFromFile, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE)            \
	X(cuLinkComplete, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE)                   \
	X(cuModuleUnload, CALL_UNLOAD, 0, 0, CALL_NONE, CALL_NONE)                 \
	X(cuLibraryUnload, CALL_UNLOAD, 0, 0, CALL_NONE, CALL_NONE)                \
	X(cuModuleGetFunction, CALL_NAME, 0, 0, 0, 2)                              \
	X(cuLibraryGetKernel, CALL_NAME, 0, 0, 0, 2)                               \
	X(cuLibraryGetUnifiedFunction, CALL_NAME, 0, 0, 0, 2)                      \
	X(cuKernelGetFunction, CALL_NAME_FROM, 0, 0, 0, 1)                         \
	X(cuFuncGetName, CALL_NAME_OF, 0, 0, 0, 1)                                 \
	X(cuKernelGetName, CALL_NAME_OF, 0, 0, 0, 1)                               \
	X(cuStreamBeginCapture, CALL_CAPTURE, 0, 0, CALL_NONE, 0)                  \
	X(cuStreamBeginCapture_ptsz, CALL_CAPTURE, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(cuStreamBeginCapture_v2, CALL_CAPTURE, 0, 0, CALL_NONE, 0)               \
	X(cuStreamBeginCapture_v2_ptsz, CALL_CAPTURE, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(cuStreamEndCapture, CALL_CAPTURED, 0, 0, 1, 0)                           \
	X(cuStreamEndCapture_ptsz, CALL_CAPTURED, 0, CALL_PER_THREAD, 1, 0)        \
	X(cuGraphInstantiate, CALL_INSTANTIATE, 0, 0, 0, 1)                        \
	X(cuGraphInstantiate_v2, CALL_INSTANTIATE, 0, 0, 0, 1)                     \
	X(cuGraphInstantiateWithFlags, CALL_INSTANTIATE, 0, 0, 0, 1)               \
	X(cuGraphInstantiateWithParams, CALL_INSTANTIATE, 0, 0, 0, 1)              \
	X(cuGraphInstantiateWithParams_ptsz, CALL_INSTANTIATE, 0, CALL_PER_THREAD, 0, 1) \
	X(cuGraphAddKernelNode, CALL_NODE, 0, 0, CALL_NONE, 1)                     \
	X(cuGraphAddKernelNode_v2, CALL_NODE, 0, 0, CALL_NONE, 1)                  \
	X(cuGraphAddMemcpyNode, CALL_NODE, 0, 0, CALL_NONE, 1)                     \
	X(cuGraphAddMemsetNode, CALL_NODE, 0, 0, CALL_NONE, 1)                     \
	X(cuGraphAddHostNode, CALL_NODE, 0, 0, CALL_NONE, 1)                       \
	X(cuGraphAddChildGraphNode, CALL_NODE, 0, 0, CALL_NONE, 1)                 \
	X(cuGraphAddEmptyNode, CALL_NODE, 0, 0, CALL_NONE, 1)                      \
	X(cuGraphAddEventRecordNode, CALL_NODE, 0, 0, CALL_NONE, 1)                \
	X(cuGraphAddEventWaitNode, CALL_NODE, 0, 0, CALL_NONE, 1)                  \
	X(cuGraphAddMemAllocNode, CALL_NODE, 0, 0, CALL_NONE, 1)                   \
	X(cuGraphAddMemFreeNode, CALL_NODE, 0, 0, CALL_NONE, 1)                    \
	X(cuGraphAddNode, CALL_NODE, 0, 0, CALL_NONE, 1)                           \
	X(cuGraphAddNode_v2, CALL_NODE, 0, 0, CALL_NONE, 1)

/*
 * X(library, symbol, op, a): the launches of the runtime, which identify the kernel by a
 * function of the program, and the well-known entry points of other libraries. Before
 * version 9, cuDNN exports its own from libcudnn_cnn_infer and similar libraries.
 */
#define LIBRARY_CALLS(X)                                            \
	X(libcudart, cudaLaunchKernel, CALL_STUB, 0)                \
	X(libcudart, cudaLaunchKernel_ptsz, CALL_STUB, 0)           \
	X(libcudart, cudaLaunchCooperativeKernel, CALL_STUB, 0)     \
	X(libcudart, cudaLaunchCooperativeKernel_ptsz, CALL_STUB, 0) \
	X(libcudart, cudaLaunchKernelExC, CALL_STUB, 1)             \
	X(libcudart, cudaLaunchKernelExC_ptsz, CALL_STUB, 1)        \
	X(libcublas, cublasSgemm_v2, CALL_LIBRARY, 0)               \
	X(libcublas, cublasDgemm_v2, CALL_LIBRARY, 0)               \
	X(libcublas, cublasHgemm, CALL_LIBRARY, 0)                  \
	X(libcublas, cublasCgemm_v2, CALL_LIBRARY, 0)               \
	X(libcublas, cublasSgemv_v2, CALL_LIBRARY, 0)               \
	X(libcublas, cublasGemmEx, CALL_LIBRARY, 0)                 \
	X(libcublas, cublasGemmBatchedEx, CALL_LIBRARY, 0)          \
	X(libcublas, cublasGemmStridedBatchedEx, CALL_LIBRARY, 0)   \
	X(libcublas, cublasSgemmBatched, CALL_LIBRARY, 0)           \
	X(libcublas, cublasSgemmStridedBatched, CALL_LIBRARY, 0)    \
	X(libcublas, cublasHgemmStridedBatched, CALL_LIBRARY, 0)    \
	X(libcublasLt, cublasLtMatmul, CALL_LIBRARY, 0)             \
	X(libcudnn, cudnnBackendExecute, CALL_LIBRARY, 0)           \
	X(libcudnn, cudnnConvolutionForward, CALL_LIBRARY, 0)       \
	X(libcudnn, cudnnConvolutionBackwardData, CALL_LIBRARY, 0)  \
	X(libcudnn, cudnnConvolutionBackwardFilter, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnBatchNormalizationForwardTraining, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnRNNForward, CALL_LIBRARY, 0)               \
	X(libcudnn, cudnnMultiHeadAttnForward, CALL_LIBRARY, 0)
/* A CALL_STUB is probed only while kernels have no names. */
#define STUB_ATTACH ATTACH_FACT(FACT_KERNEL)
#endif

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
