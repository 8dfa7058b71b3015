/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CUDA_LAUNCH_APIS_H
#define GPU_GADGETS_CUDA_LAUNCH_APIS_H

/*
 * launch_apis: the calls of the CUDA driver that give the GPU work, move data, wait for it and
 * name kernels. Ops, details, flags and columns: launch/apis.h, which includes this file.
 *
 * Signatures: CUDA Driver API reference 12.4, cuda.h; cuBLAS, cuBLASLt and cuDNN 9.
 * Symbols: libcuda 535.261; cuFuncGetName, cuKernelGetName, cuGraphAddNode_v2,
 * cuStreamBeginCaptureToGraph (12.3), cuMemcpyBatchAsync (12.8, and 13.0 without failIdx: _v2)
 * and cuMemcpyWithAttributesAsync (13.2) came later. The first ABI (before CUDA 3.2) is not covered,
 * nor are cuMemcpy3DBatchAsync and cuMemcpy3DWithAttributesAsync.
 */

/* The launch that is followed in windows if any is. */
#define API_LAUNCH_USUAL API_cuLaunchKernel

/* X(symbol, op, detail, flags, a, b), of libcuda */
#define LAUNCH_CALLS(X) \
	X(cuLaunchKernel, CALL_LAUNCH, 0, 0, 0, 8) \
	X(cuLaunchKernel_ptsz, CALL_LAUNCH, 0, CALL_PER_THREAD, 0, 8) \
	X(cuLaunchKernelEx, CALL_LAUNCH_EX, 0, 0, 1, 0) \
	X(cuLaunchKernelEx_ptsz, CALL_LAUNCH_EX, 0, CALL_PER_THREAD, 1, 0) \
	X(cuLaunchCooperativeKernel, CALL_LAUNCH, 0, 0, 0, 8) \
	X(cuLaunchCooperativeKernel_ptsz, CALL_LAUNCH, 0, CALL_PER_THREAD, 0, 8) \
	X(cuLaunchCooperativeKernelMultiDevice, CALL_LAUNCH_MULTI, 0, 0, 0, 1) \
	X(cuGraphLaunch, CALL_GRAPH, 0, 0, 0, 1) \
	X(cuGraphLaunch_ptsz, CALL_GRAPH, 0, CALL_PER_THREAD, 0, 1) \
	X(cuLaunchHostFunc, CALL_HOST, 0, 0, 1, 0) \
	X(cuLaunchHostFunc_ptsz, CALL_HOST, 0, CALL_PER_THREAD, 1, 0)

#define COPY_CALLS(X) \
	X(cuMemcpy, CALL_COPY, COPY_ANY, 0, 2, CALL_NONE) \
	X(cuMemcpy_ptds, CALL_COPY, COPY_ANY, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemcpyHtoD_v2, CALL_COPY, COPY_HTOD, 0, 2, CALL_NONE) \
	X(cuMemcpyHtoD_v2_ptds, CALL_COPY, COPY_HTOD, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemcpyDtoH_v2, CALL_COPY, COPY_DTOH, 0, 2, CALL_NONE) \
	X(cuMemcpyDtoH_v2_ptds, CALL_COPY, COPY_DTOH, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemcpyDtoD_v2, CALL_COPY, COPY_DTOD, 0, 2, CALL_NONE) \
	X(cuMemcpyDtoD_v2_ptds, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemcpyHtoA_v2, CALL_COPY, COPY_HTOD, 0, 3, CALL_NONE) \
	X(cuMemcpyHtoA_v2_ptds, CALL_COPY, COPY_HTOD, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemcpyAtoH_v2, CALL_COPY, COPY_DTOH, 0, 3, CALL_NONE) \
	X(cuMemcpyAtoH_v2_ptds, CALL_COPY, COPY_DTOH, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemcpyDtoA_v2, CALL_COPY, COPY_DTOD, 0, 3, CALL_NONE) \
	X(cuMemcpyDtoA_v2_ptds, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemcpyAtoD_v2, CALL_COPY, COPY_DTOD, 0, 3, CALL_NONE) \
	X(cuMemcpyAtoD_v2_ptds, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemcpyAtoA_v2, CALL_COPY, COPY_DTOD, 0, 4, CALL_NONE) \
	X(cuMemcpyAtoA_v2_ptds, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 4, CALL_NONE) \
	X(cuMemcpyPeer, CALL_COPY, COPY_PTOP, 0, 4, CALL_NONE) \
	X(cuMemcpyPeer_ptds, CALL_COPY, COPY_PTOP, CALL_PER_THREAD, 4, CALL_NONE) \
	X(cuMemcpyAsync, CALL_COPY, COPY_ANY, 0, 2, 3) \
	X(cuMemcpyAsync_ptsz, CALL_COPY, COPY_ANY, CALL_PER_THREAD, 2, 3) \
	X(cuMemcpyWithAttributesAsync, CALL_COPY, COPY_ANY, 0, 2, 4) \
	X(cuMemcpyWithAttributesAsync_ptsz, CALL_COPY, COPY_ANY, CALL_PER_THREAD, 2, 4) \
	X(cuMemcpyBatchAsync, CALL_COPY_BATCH, 0, CALL_ON_STACK, 2, 8) \
	X(cuMemcpyBatchAsync_ptsz, CALL_COPY_BATCH, 0, CALL_ON_STACK | CALL_PER_THREAD, 2, 8) \
	X(cuMemcpyBatchAsync_v2, CALL_COPY_BATCH, 0, CALL_ON_STACK, 2, 7) \
	X(cuMemcpyBatchAsync_v2_ptsz, CALL_COPY_BATCH, 0, CALL_ON_STACK | CALL_PER_THREAD, 2, 7) \
	X(cuMemcpyHtoDAsync_v2, CALL_COPY, COPY_HTOD, 0, 2, 3) \
	X(cuMemcpyHtoDAsync_v2_ptsz, CALL_COPY, COPY_HTOD, CALL_PER_THREAD, 2, 3) \
	X(cuMemcpyDtoHAsync_v2, CALL_COPY, COPY_DTOH, 0, 2, 3) \
	X(cuMemcpyDtoHAsync_v2_ptsz, CALL_COPY, COPY_DTOH, CALL_PER_THREAD, 2, 3) \
	X(cuMemcpyDtoDAsync_v2, CALL_COPY, COPY_DTOD, 0, 2, 3) \
	X(cuMemcpyDtoDAsync_v2_ptsz, CALL_COPY, COPY_DTOD, CALL_PER_THREAD, 2, 3) \
	X(cuMemcpyHtoAAsync_v2, CALL_COPY, COPY_HTOD, 0, 3, 4) \
	X(cuMemcpyHtoAAsync_v2_ptsz, CALL_COPY, COPY_HTOD, CALL_PER_THREAD, 3, 4) \
	X(cuMemcpyAtoHAsync_v2, CALL_COPY, COPY_DTOH, 0, 3, 4) \
	X(cuMemcpyAtoHAsync_v2_ptsz, CALL_COPY, COPY_DTOH, CALL_PER_THREAD, 3, 4) \
	X(cuMemcpyPeerAsync, CALL_COPY, COPY_PTOP, 0, 4, 5) \
	X(cuMemcpyPeerAsync_ptsz, CALL_COPY, COPY_PTOP, CALL_PER_THREAD, 4, 5) \
	X(cuMemcpy2D_v2, CALL_COPY_2D, 0, 0, 0, CALL_NONE) \
	X(cuMemcpy2D_v2_ptds, CALL_COPY_2D, 0, CALL_PER_THREAD, 0, CALL_NONE) \
	X(cuMemcpy2DUnaligned_v2, CALL_COPY_2D, 0, 0, 0, CALL_NONE) \
	X(cuMemcpy2DUnaligned_v2_ptds, CALL_COPY_2D, 0, CALL_PER_THREAD, 0, CALL_NONE) \
	X(cuMemcpy2DAsync_v2, CALL_COPY_2D, 0, 0, 0, 1) \
	X(cuMemcpy2DAsync_v2_ptsz, CALL_COPY_2D, 0, CALL_PER_THREAD, 0, 1) \
	X(cuMemcpy3D_v2, CALL_COPY_3D, 0, 0, 0, CALL_NONE) \
	X(cuMemcpy3D_v2_ptds, CALL_COPY_3D, 0, CALL_PER_THREAD, 0, CALL_NONE) \
	X(cuMemcpy3DAsync_v2, CALL_COPY_3D, 0, 0, 0, 1) \
	X(cuMemcpy3DAsync_v2_ptsz, CALL_COPY_3D, 0, CALL_PER_THREAD, 0, 1) \
	X(cuMemcpy3DPeer, CALL_COPY_3D, COPY_PTOP, 0, 0, CALL_NONE) \
	X(cuMemcpy3DPeer_ptds, CALL_COPY_3D, COPY_PTOP, CALL_PER_THREAD, 0, CALL_NONE) \
	X(cuMemcpy3DPeerAsync, CALL_COPY_3D, COPY_PTOP, 0, 0, 1) \
	X(cuMemcpy3DPeerAsync_ptsz, CALL_COPY_3D, COPY_PTOP, CALL_PER_THREAD, 0, 1) \
	X(cuMemPrefetchAsync, CALL_PREFETCH, 0, 0, 1, 3) \
	X(cuMemPrefetchAsync_ptsz, CALL_PREFETCH, 0, CALL_PER_THREAD, 1, 3) \
	X(cuMemPrefetchAsync_v2, CALL_PREFETCH, PREFETCH_LOCATION, 0, 1, 4) \
	X(cuMemPrefetchAsync_v2_ptsz, CALL_PREFETCH, PREFETCH_LOCATION, CALL_PER_THREAD, 1, 4) \
	X(cuMemsetD8_v2, CALL_SET, 1, 0, 2, CALL_NONE) \
	X(cuMemsetD8_v2_ptds, CALL_SET, 1, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemsetD8Async, CALL_SET, 1, 0, 2, 3) \
	X(cuMemsetD8Async_ptsz, CALL_SET, 1, CALL_PER_THREAD, 2, 3) \
	X(cuMemsetD2D8_v2, CALL_SET_2D, 1, 0, 3, CALL_NONE) \
	X(cuMemsetD2D8_v2_ptds, CALL_SET_2D, 1, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemsetD2D8Async, CALL_SET_2D, 1, 0, 3, 5) \
	X(cuMemsetD2D8Async_ptsz, CALL_SET_2D, 1, CALL_PER_THREAD, 3, 5) \
	X(cuMemsetD16_v2, CALL_SET, 2, 0, 2, CALL_NONE) \
	X(cuMemsetD16_v2_ptds, CALL_SET, 2, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemsetD16Async, CALL_SET, 2, 0, 2, 3) \
	X(cuMemsetD16Async_ptsz, CALL_SET, 2, CALL_PER_THREAD, 2, 3) \
	X(cuMemsetD2D16_v2, CALL_SET_2D, 2, 0, 3, CALL_NONE) \
	X(cuMemsetD2D16_v2_ptds, CALL_SET_2D, 2, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemsetD2D16Async, CALL_SET_2D, 2, 0, 3, 5) \
	X(cuMemsetD2D16Async_ptsz, CALL_SET_2D, 2, CALL_PER_THREAD, 3, 5) \
	X(cuMemsetD32_v2, CALL_SET, 4, 0, 2, CALL_NONE) \
	X(cuMemsetD32_v2_ptds, CALL_SET, 4, CALL_PER_THREAD, 2, CALL_NONE) \
	X(cuMemsetD32Async, CALL_SET, 4, 0, 2, 3) \
	X(cuMemsetD32Async_ptsz, CALL_SET, 4, CALL_PER_THREAD, 2, 3) \
	X(cuMemsetD2D32_v2, CALL_SET_2D, 4, 0, 3, CALL_NONE) \
	X(cuMemsetD2D32_v2_ptds, CALL_SET_2D, 4, CALL_PER_THREAD, 3, CALL_NONE) \
	X(cuMemsetD2D32Async, CALL_SET_2D, 4, 0, 3, 5) \
	X(cuMemsetD2D32Async_ptsz, CALL_SET_2D, 4, CALL_PER_THREAD, 3, 5)

#define OTHER_CALLS(X) \
	X(cuStreamSynchronize, CALL_WAIT, 0, 0, CALL_NONE, 0) \
	X(cuStreamSynchronize_ptsz, CALL_WAIT, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(cuCtxSynchronize, CALL_WAIT, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuCtxSynchronize_v2, CALL_WAIT, 0, CALL_OF_CONTEXT, 0, CALL_NONE) \
	X(cuEventSynchronize, CALL_WAIT, 0, CALL_OF_EVENT, 0, CALL_NONE) \
	X(cuStreamWaitEvent, CALL_ORDER, 0, 0, 1, 0) \
	X(cuStreamWaitEvent_ptsz, CALL_ORDER, 0, CALL_PER_THREAD, 1, 0) \
	X(cuStreamQuery, CALL_QUERY, 0, 0, CALL_NONE, 0) \
	X(cuStreamQuery_ptsz, CALL_QUERY, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(cuEventQuery, CALL_QUERY, 0, CALL_OF_EVENT, 0, CALL_NONE) \
	X(cuEventRecord, CALL_RECORD, 0, 0, 0, 1) \
	X(cuEventRecord_ptsz, CALL_RECORD, 0, CALL_PER_THREAD, 0, 1) \
	X(cuEventRecordWithFlags, CALL_RECORD, 0, 0, 0, 1) \
	X(cuEventRecordWithFlags_ptsz, CALL_RECORD, 0, CALL_PER_THREAD, 0, 1) \
	X(cuModuleLoad, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuModuleLoadData, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuModuleLoadDataEx, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuModuleLoadFatBinary, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuLibraryLoadData, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuLibraryLoadFromFile, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuLinkComplete, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuModuleUnload, CALL_UNLOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuLibraryUnload, CALL_UNLOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(cuModuleGetFunction, CALL_NAME, 0, 0, 0, 2) \
	X(cuLibraryGetKernel, CALL_NAME, 0, 0, 0, 2) \
	X(cuLibraryGetUnifiedFunction, CALL_NAME, 0, 0, 0, 2) \
	X(cuKernelGetFunction, CALL_NAME_FROM, 0, 0, 0, 1) \
	X(cuFuncGetName, CALL_NAME_OF, 0, 0, 0, 1) \
	X(cuKernelGetName, CALL_NAME_OF, 0, 0, 0, 1) \
	X(cuStreamBeginCapture, CALL_CAPTURE, 0, 0, CALL_NONE, 0) \
	X(cuStreamBeginCapture_ptsz, CALL_CAPTURE, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(cuStreamBeginCapture_v2, CALL_CAPTURE, 0, 0, CALL_NONE, 0) \
	X(cuStreamBeginCapture_v2_ptsz, CALL_CAPTURE, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(cuStreamBeginCaptureToGraph, CALL_CAPTURE, 0, 0, 1, 0) \
	X(cuStreamBeginCaptureToGraph_ptsz, CALL_CAPTURE, 0, CALL_PER_THREAD, 1, 0) \
	X(cuStreamEndCapture, CALL_CAPTURED, 0, 0, 1, 0) \
	X(cuStreamEndCapture_ptsz, CALL_CAPTURED, 0, CALL_PER_THREAD, 1, 0) \
	X(cuGraphCreate, CALL_NEW_GRAPH, 0, 0, 0, CALL_NONE) \
	X(cuGraphClone, CALL_NEW_GRAPH, 0, 0, 0, 1) \
	X(cuGraphInstantiate, CALL_INSTANTIATE, 0, 0, 0, 1) \
	X(cuGraphInstantiate_v2, CALL_INSTANTIATE, 0, 0, 0, 1) \
	X(cuGraphInstantiateWithFlags, CALL_INSTANTIATE, 0, 0, 0, 1) \
	X(cuGraphInstantiateWithParams, CALL_INSTANTIATE, 0, 0, 0, 1) \
	X(cuGraphInstantiateWithParams_ptsz, CALL_INSTANTIATE, 0, CALL_PER_THREAD, 0, 1) \
	X(cuGraphAddKernelNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddKernelNode_v2, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddMemcpyNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddMemsetNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddHostNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddChildGraphNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddEmptyNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddEventRecordNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddEventWaitNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddMemAllocNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddMemFreeNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(cuGraphAddNode_v2, CALL_NODE, 0, 0, CALL_NONE, 1)

/*
 * X(library, symbol, op, a): the launches of the runtime, which identify the kernel by a
 * function of the program, and the well-known entry points of other libraries. Before
 * version 9, cuDNN exports its own from libcudnn_cnn_infer and similar libraries.
 */
#define LIBRARY_CALLS(X) \
	X(libcudart, cudaLaunchKernel, CALL_STUB, 0) \
	X(libcudart, cudaLaunchKernel_ptsz, CALL_STUB, 0) \
	X(libcudart, cudaLaunchCooperativeKernel, CALL_STUB, 0) \
	X(libcudart, cudaLaunchCooperativeKernel_ptsz, CALL_STUB, 0) \
	X(libcudart, cudaLaunchKernelExC, CALL_STUB, 1) \
	X(libcudart, cudaLaunchKernelExC_ptsz, CALL_STUB, 1) \
	X(libcublas, cublasSgemm_v2, CALL_LIBRARY, 0) \
	X(libcublas, cublasDgemm_v2, CALL_LIBRARY, 0) \
	X(libcublas, cublasHgemm, CALL_LIBRARY, 0) \
	X(libcublas, cublasCgemm_v2, CALL_LIBRARY, 0) \
	X(libcublas, cublasSgemv_v2, CALL_LIBRARY, 0) \
	X(libcublas, cublasGemmEx, CALL_LIBRARY, 0) \
	X(libcublas, cublasGemmBatchedEx, CALL_LIBRARY, 0) \
	X(libcublas, cublasGemmStridedBatchedEx, CALL_LIBRARY, 0) \
	X(libcublas, cublasSgemmBatched, CALL_LIBRARY, 0) \
	X(libcublas, cublasSgemmStridedBatched, CALL_LIBRARY, 0) \
	X(libcublas, cublasHgemmStridedBatched, CALL_LIBRARY, 0) \
	X(libcublasLt, cublasLtMatmul, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnBackendExecute, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnConvolutionForward, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnConvolutionBackwardData, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnConvolutionBackwardFilter, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnBatchNormalizationForwardTraining, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnRNNForward, CALL_LIBRARY, 0) \
	X(libcudnn, cudnnMultiHeadAttnForward, CALL_LIBRARY, 0)

/* X(symbol, op, a, b) */
#define CONTEXT_PROBED_CALLS(X) \
	X(cuCtxCreate, CONTEXT_CREATE, 0, 2) \
	X(cuCtxCreate_v2, CONTEXT_CREATE, 0, 2) \
	X(cuCtxCreate_v3, CONTEXT_CREATE, 0, 4) \
	X(cuCtxCreate_v4, CONTEXT_CREATE, 0, 3) \
	X(cuDevicePrimaryCtxRetain, CONTEXT_RETAIN, 0, 1) \
	X(cuCtxDestroy, CONTEXT_DESTROY, 0, CALL_NONE) \
	X(cuCtxDestroy_v2, CONTEXT_DESTROY, 0, CALL_NONE) \
	X(cuCtxSetCurrent, CONTEXT_SET, 0, CALL_NONE) \
	X(cuCtxPushCurrent, CONTEXT_PUSH, 0, CALL_NONE) \
	X(cuCtxPushCurrent_v2, CONTEXT_PUSH, 0, CALL_NONE) \
	X(cuCtxPopCurrent, CONTEXT_POP, 0, CALL_NONE) \
	X(cuCtxPopCurrent_v2, CONTEXT_POP, 0, CALL_NONE)

/* Functions that are probed on demand only: FACT_DEVICE of call/demand.h. */
#define CONTEXT_DEMAND_CALLS(X) X(cuCtxGetDevice, CONTEXT_DEVICE, 0, CALL_NONE)

/* Arguments on the stack that are read: cuLaunchKernel has nine of interest. */
#define MORE_ARGUMENTS 3

/* CUmemorytype: host 1, device 2, unified 4. */
#define ARRAY_MEMORY_TYPE 3

/* X(number, direction) of the kinds of copies. The driver has none. */
#define COPY_KINDS(X)

/*
 * X(from, to, extent): where a descriptor of CALL_COPY_3D has the types of memory, and its width,
 * height and depth. CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER.
 */
#define COPY_3D_LAYOUTS(X) X(32, 120, 176)

#endif
