/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_LAUNCH_APIS_H
#define GPU_GADGETS_HIP_LAUNCH_APIS_H

/*
 * launch_apis: the calls of AMD's HIP runtime, libamdhip64, that give the GPU work, move data,
 * wait for it and name kernels, instead of those of the CUDA driver. Ops and columns are those
 * of launch/apis.h, which includes this file.
 *
 * Signatures: hip_runtime_api.h and hip_ext.h 6.4.3, and the reference for what came later:
 * hipMemcpyBatchAsync, hipLaunchKernelExC and hipDrvLaunchKernelEx, hipMemPrefetchAsync_v2,
 * hipMemsetD2D8 … 32 and hipModuleLoadFatBinary (7.1), hipLibrary… (7.2). Functions that a version
 * does not export are not probed. Not here: hipLaunchByPtr, whose grid was the argument of an
 * earlier call, hipMemcpy3DPeer, whose descriptor is a third one, and hipMemcpy3DBatchAsync.
 */

/* The launch that is followed in windows if any is. */
#define API_LAUNCH_USUAL API_hipLaunchKernel

/* X(symbol, op, detail, flags, a, b) */
#define LAUNCH_CALLS(X) \
	X(hipLaunchKernel, CALL_LAUNCH, LAUNCH_HOST, 0, 0, 7) \
	X(hipLaunchKernel_spt, CALL_LAUNCH, LAUNCH_HOST, CALL_PER_THREAD, 0, 7) \
	X(hipExtLaunchKernel, CALL_LAUNCH, LAUNCH_HOST, 0, 0, 7) \
	X(hipLaunchCooperativeKernel, CALL_LAUNCH, LAUNCH_HOST, 0, 0, 7) \
	X(hipLaunchCooperativeKernel_spt, CALL_LAUNCH, LAUNCH_HOST, CALL_PER_THREAD, 0, 7) \
	X(hipModuleLaunchKernel, CALL_LAUNCH, LAUNCH_BLOCKS, 0, 0, 8) \
	X(hipModuleLaunchCooperativeKernel, CALL_LAUNCH, LAUNCH_BLOCKS, 0, 0, 8) \
	X(hipExtModuleLaunchKernel, CALL_LAUNCH, LAUNCH_ITEMS, 0, 0, 8) \
	X(hipHccModuleLaunchKernel, CALL_LAUNCH, LAUNCH_ITEMS, 0, 0, 8) \
	X(hipLaunchKernelExC, CALL_LAUNCH_EX, LAUNCH_HOST, 0, 1, 0) \
	X(hipDrvLaunchKernelEx, CALL_LAUNCH_EX, 0, 0, 1, 0) \
	X(hipLaunchCooperativeKernelMultiDevice, CALL_LAUNCH_MULTI, LAUNCH_HOST, 0, 0, 1) \
	X(hipExtLaunchMultiKernelMultiDevice, CALL_LAUNCH_MULTI, LAUNCH_HOST, 0, 0, 1) \
	X(hipModuleLaunchCooperativeKernelMultiDevice, CALL_LAUNCH_MULTI, LAUNCH_BLOCKS, 0, 0, 1) \
	X(hipGraphLaunch, CALL_GRAPH, 0, 0, 0, 1) \
	X(hipGraphLaunch_spt, CALL_GRAPH, 0, CALL_PER_THREAD, 0, 1) \
	X(hipLaunchHostFunc, CALL_HOST, 0, 0, 1, 0) \
	X(hipLaunchHostFunc_spt, CALL_HOST, 0, CALL_PER_THREAD, 1, 0)

#define COPY_CALLS(X) \
	X(hipMemcpy, CALL_COPY, COPY_KIND(3), 0, 2, CALL_NONE) \
	X(hipMemcpy_spt, CALL_COPY, COPY_KIND(3), CALL_PER_THREAD, 2, CALL_NONE) \
	X(hipMemcpyWithStream, CALL_COPY, COPY_KIND(3), 0, 2, 4) \
	X(hipMemcpyAsync, CALL_COPY, COPY_KIND(3), 0, 2, 4) \
	X(hipMemcpyAsync_spt, CALL_COPY, COPY_KIND(3), CALL_PER_THREAD, 2, 4) \
	X(hipMemcpyBatchAsync, CALL_COPY_BATCH, 0, CALL_ON_STACK, 2, 8) \
	X(hipMemcpyHtoD, CALL_COPY, COPY_HTOD, 0, 2, CALL_NONE) \
	X(hipMemcpyDtoH, CALL_COPY, COPY_DTOH, 0, 2, CALL_NONE) \
	X(hipMemcpyDtoD, CALL_COPY, COPY_DTOD, 0, 2, CALL_NONE) \
	X(hipMemcpyHtoDAsync, CALL_COPY, COPY_HTOD, 0, 2, 3) \
	X(hipMemcpyDtoHAsync, CALL_COPY, COPY_DTOH, 0, 2, 3) \
	X(hipMemcpyDtoDAsync, CALL_COPY, COPY_DTOD, 0, 2, 3) \
	X(hipMemcpyHtoA, CALL_COPY, COPY_HTOD, 0, 3, CALL_NONE) \
	X(hipMemcpyAtoH, CALL_COPY, COPY_DTOH, 0, 3, CALL_NONE) \
	X(hipMemcpyDtoA, CALL_COPY, COPY_DTOD, 0, 3, CALL_NONE) \
	X(hipMemcpyAtoD, CALL_COPY, COPY_DTOD, 0, 3, CALL_NONE) \
	X(hipMemcpyAtoA, CALL_COPY, COPY_DTOD, 0, 4, CALL_NONE) \
	X(hipMemcpyHtoAAsync, CALL_COPY, COPY_HTOD, 0, 3, 4) \
	X(hipMemcpyAtoHAsync, CALL_COPY, COPY_DTOH, 0, 3, 4) \
	X(hipMemcpyPeer, CALL_COPY, COPY_PTOP, 0, 4, CALL_NONE) \
	X(hipMemcpyPeerAsync, CALL_COPY, COPY_PTOP, 0, 4, 5) \
	X(hipMemcpyToSymbol, CALL_COPY, COPY_KIND(4), 0, 2, CALL_NONE) \
	X(hipMemcpyToSymbol_spt, CALL_COPY, COPY_KIND(4), CALL_PER_THREAD, 2, CALL_NONE) \
	X(hipMemcpyToSymbolAsync, CALL_COPY, COPY_KIND(4), 0, 2, 5) \
	X(hipMemcpyToSymbolAsync_spt, CALL_COPY, COPY_KIND(4), CALL_PER_THREAD, 2, 5) \
	X(hipMemcpyFromSymbol, CALL_COPY, COPY_KIND(4), 0, 2, CALL_NONE) \
	X(hipMemcpyFromSymbol_spt, CALL_COPY, COPY_KIND(4), CALL_PER_THREAD, 2, CALL_NONE) \
	X(hipMemcpyFromSymbolAsync, CALL_COPY, COPY_KIND(4), 0, 2, 5) \
	X(hipMemcpyFromSymbolAsync_spt, CALL_COPY, COPY_KIND(4), CALL_PER_THREAD, 2, 5) \
	X(hipMemcpyToArray, CALL_COPY, COPY_KIND(5), 0, 4, CALL_NONE) \
	X(hipMemcpyFromArray, CALL_COPY, COPY_KIND(5), 0, 4, CALL_NONE) \
	X(hipMemcpyFromArray_spt, CALL_COPY, COPY_KIND(5), CALL_PER_THREAD, 4, CALL_NONE) \
	X(hipMemcpy2D, CALL_COPY, COPY_KIND(6), CALL_ON_STACK | CALL_2D, 4, CALL_NONE) \
	X(hipMemcpy2D_spt, CALL_COPY, COPY_KIND(6), CALL_ON_STACK | CALL_2D | CALL_PER_THREAD, 4, \
	  CALL_NONE) \
	X(hipMemcpy2DAsync, CALL_COPY, COPY_KIND(6), CALL_ON_STACK | CALL_2D, 4, 7) \
	X(hipMemcpy2DAsync_spt, CALL_COPY, COPY_KIND(6), \
	  CALL_ON_STACK | CALL_2D | CALL_PER_THREAD, 4, 7) \
	X(hipMemcpy2DToArray, CALL_COPY, COPY_KIND(7), CALL_ON_STACK | CALL_2D, 5, CALL_NONE) \
	X(hipMemcpy2DToArray_spt, CALL_COPY, COPY_KIND(7), \
	  CALL_ON_STACK | CALL_2D | CALL_PER_THREAD, 5, CALL_NONE) \
	X(hipMemcpy2DToArrayAsync, CALL_COPY, COPY_KIND(7), CALL_ON_STACK | CALL_2D, 5, 8) \
	X(hipMemcpy2DToArrayAsync_spt, CALL_COPY, COPY_KIND(7), \
	  CALL_ON_STACK | CALL_2D | CALL_PER_THREAD, 5, 8) \
	X(hipMemcpy2DFromArray, CALL_COPY, COPY_KIND(7), CALL_ON_STACK | CALL_2D, 5, CALL_NONE) \
	X(hipMemcpy2DFromArray_spt, CALL_COPY, COPY_KIND(7), \
	  CALL_ON_STACK | CALL_2D | CALL_PER_THREAD, 5, CALL_NONE) \
	X(hipMemcpy2DFromArrayAsync, CALL_COPY, COPY_KIND(7), CALL_ON_STACK | CALL_2D, 5, 8) \
	X(hipMemcpy2DFromArrayAsync_spt, CALL_COPY, COPY_KIND(7), \
	  CALL_ON_STACK | CALL_2D | CALL_PER_THREAD, 5, 8) \
	X(hipMemcpy2DArrayToArray, CALL_COPY, COPY_KIND(8), CALL_ON_STACK | CALL_2D, 6, CALL_NONE) \
	X(hipMemcpyParam2D, CALL_COPY_2D, 0, 0, 0, CALL_NONE) \
	X(hipMemcpyParam2DAsync, CALL_COPY_2D, 0, 0, 0, 1) \
	X(hipDrvMemcpy2DUnaligned, CALL_COPY_2D, 0, 0, 0, CALL_NONE) \
	X(hipDrvMemcpy3D, CALL_COPY_3D, 0, 0, 0, CALL_NONE) \
	X(hipDrvMemcpy3DAsync, CALL_COPY_3D, 0, 0, 0, 1) \
	X(hipMemcpy3D, CALL_COPY_3D, COPY_SECOND, 0, 0, CALL_NONE) \
	X(hipMemcpy3D_spt, CALL_COPY_3D, COPY_SECOND, CALL_PER_THREAD, 0, CALL_NONE) \
	X(hipMemcpy3DAsync, CALL_COPY_3D, COPY_SECOND, 0, 0, 1) \
	X(hipMemcpy3DAsync_spt, CALL_COPY_3D, COPY_SECOND, CALL_PER_THREAD, 0, 1) \
	X(hipMemPrefetchAsync, CALL_PREFETCH, 0, 0, 1, 3) \
	X(hipMemPrefetchAsync_v2, CALL_PREFETCH, PREFETCH_LOCATION, 0, 1, 4) \
	X(hipMemset, CALL_SET, 1, 0, 2, CALL_NONE) \
	X(hipMemset_spt, CALL_SET, 1, CALL_PER_THREAD, 2, CALL_NONE) \
	X(hipMemsetAsync, CALL_SET, 1, 0, 2, 3) \
	X(hipMemsetAsync_spt, CALL_SET, 1, CALL_PER_THREAD, 2, 3) \
	X(hipMemsetD8, CALL_SET, 1, 0, 2, CALL_NONE) \
	X(hipMemsetD8Async, CALL_SET, 1, 0, 2, 3) \
	X(hipMemsetD16, CALL_SET, 2, 0, 2, CALL_NONE) \
	X(hipMemsetD16Async, CALL_SET, 2, 0, 2, 3) \
	X(hipMemsetD32, CALL_SET, 4, 0, 2, CALL_NONE) \
	X(hipMemsetD32Async, CALL_SET, 4, 0, 2, 3) \
	X(hipMemsetD2D8, CALL_SET_2D, 1, 0, 3, CALL_NONE) \
	X(hipMemsetD2D8Async, CALL_SET_2D, 1, 0, 3, 5) \
	X(hipMemsetD2D16, CALL_SET_2D, 2, 0, 3, CALL_NONE) \
	X(hipMemsetD2D16Async, CALL_SET_2D, 2, 0, 3, 5) \
	X(hipMemsetD2D32, CALL_SET_2D, 4, 0, 3, CALL_NONE) \
	X(hipMemsetD2D32Async, CALL_SET_2D, 4, 0, 3, 5) \
	X(hipMemset2D, CALL_SET_2D, 1, 0, 3, CALL_NONE) \
	X(hipMemset2D_spt, CALL_SET_2D, 1, CALL_PER_THREAD, 3, CALL_NONE) \
	X(hipMemset2DAsync, CALL_SET_2D, 1, 0, 3, 5) \
	X(hipMemset2DAsync_spt, CALL_SET_2D, 1, CALL_PER_THREAD, 3, 5) \
	X(hipMemset3D, CALL_SET, 1, CALL_ON_STACK | CALL_2D | CALL_3D, 10, CALL_NONE) \
	X(hipMemset3D_spt, CALL_SET, 1, CALL_ON_STACK | CALL_2D | CALL_3D | CALL_PER_THREAD, 10, \
	  CALL_NONE) \
	X(hipMemset3DAsync, CALL_SET, 1, CALL_ON_STACK | CALL_2D | CALL_3D, 10, 1) \
	X(hipMemset3DAsync_spt, CALL_SET, 1, CALL_ON_STACK | CALL_2D | CALL_3D | CALL_PER_THREAD, \
	  10, 1)

#define OTHER_CALLS(X) \
	X(hipStreamSynchronize, CALL_WAIT, 0, 0, CALL_NONE, 0) \
	X(hipStreamSynchronize_spt, CALL_WAIT, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(hipDeviceSynchronize, CALL_WAIT, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipCtxSynchronize, CALL_WAIT, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipEventSynchronize, CALL_WAIT, 0, CALL_OF_EVENT, 0, CALL_NONE) \
	X(hipStreamWaitEvent, CALL_ORDER, 0, 0, 1, 0) \
	X(hipStreamWaitEvent_spt, CALL_ORDER, 0, CALL_PER_THREAD, 1, 0) \
	X(hipStreamQuery, CALL_QUERY, 0, 0, CALL_NONE, 0) \
	X(hipStreamQuery_spt, CALL_QUERY, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(hipEventQuery, CALL_QUERY, 0, CALL_OF_EVENT, 0, CALL_NONE) \
	X(hipEventRecord, CALL_RECORD, 0, 0, 0, 1) \
	X(hipEventRecord_spt, CALL_RECORD, 0, CALL_PER_THREAD, 0, 1) \
	X(hipEventRecordWithFlags, CALL_RECORD, 0, 0, 0, 1) \
	X(hipModuleLoad, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipModuleLoadData, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipModuleLoadDataEx, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipModuleLoadFatBinary, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipLibraryLoadData, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipLibraryLoadFromFile, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipLinkComplete, CALL_LOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipModuleUnload, CALL_UNLOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipLibraryUnload, CALL_UNLOAD, 0, 0, CALL_NONE, CALL_NONE) \
	X(hipModuleGetFunction, CALL_NAME, 0, 0, 0, 2) \
	X(hipLibraryGetKernel, CALL_NAME, 0, 0, 0, 2) \
	X(hipStreamBeginCapture, CALL_CAPTURE, 0, 0, CALL_NONE, 0) \
	X(hipStreamBeginCapture_spt, CALL_CAPTURE, 0, CALL_PER_THREAD, CALL_NONE, 0) \
	X(hipStreamBeginCaptureToGraph, CALL_CAPTURE, 0, 0, 1, 0) \
	X(hipStreamEndCapture, CALL_CAPTURED, 0, 0, 1, 0) \
	X(hipStreamEndCapture_spt, CALL_CAPTURED, 0, CALL_PER_THREAD, 1, 0) \
	X(hipGraphCreate, CALL_NEW_GRAPH, 0, 0, 0, CALL_NONE) \
	X(hipGraphClone, CALL_NEW_GRAPH, 0, 0, 0, 1) \
	X(hipGraphInstantiate, CALL_INSTANTIATE, 0, 0, 0, 1) \
	X(hipGraphInstantiateWithFlags, CALL_INSTANTIATE, 0, 0, 0, 1) \
	X(hipGraphInstantiateWithParams, CALL_INSTANTIATE, 0, 0, 0, 1) \
	X(hipGraphAddKernelNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddMemcpyNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddMemcpyNode1D, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddMemcpyNodeFromSymbol, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddMemcpyNodeToSymbol, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddMemsetNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddHostNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddChildGraphNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddEmptyNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddEventRecordNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddEventWaitNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddMemAllocNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddMemFreeNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddBatchMemOpNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipGraphAddNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipDrvGraphAddMemcpyNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipDrvGraphAddMemsetNode, CALL_NODE, 0, 0, CALL_NONE, 1) \
	X(hipDrvGraphAddMemFreeNode, CALL_NODE, 0, 0, CALL_NONE, 1)

/* What the compiler lets each program call at its start, once for a kernel. */
#define LIBRARY_CALLS(X) X(libamdhip64, __hipRegisterFunction, CALL_REGISTER, 1)

/* What changes the device of a thread. */
#define CONTEXT_PROBED_CALLS(X) \
	X(hipSetDevice, CONTEXT_DEVICE_SET, 0, CALL_NONE) \
	X(hipCtxSetCurrent, CONTEXT_DEVICE_OF, 0, CALL_NONE) \
	X(hipCtxPushCurrent, CONTEXT_DEVICE_OF, 0, CALL_NONE) \
	X(hipCtxCreate, CONTEXT_RETAIN, 0, 2) \
	X(hipDevicePrimaryCtxRetain, CONTEXT_RETAIN, 0, 1)

#define CONTEXT_DEMAND_CALLS(X) X(hipGetDevice, CONTEXT_DEVICE, 0, CALL_NONE)

/*
 * Kernels that processes register, 32,000 each: those of a torchrun with eight, which import PyTorch
 * within a second, and as many of others; 72 bytes and a bucket of 16 each, 44 MiB. Others' kernels
 * that are launched every two seconds stay, whatever one tenant registers.
 */
#define MAX_KERNEL_HANDLES 524288
#define NEW_KERNEL_HANDLES (MAX_KERNEL_HANDLES / 2)

/* Arguments on the stack that are read: hipMemset3D has seven. */
#define MORE_ARGUMENTS 8

/* hipMemoryType of HIP 6: host 1, device 2; others are either's. */
#define ARRAY_MEMORY_TYPE 10

/* hipMemcpyKind; 1024: between devices without compute units. */
#define COPY_KINDS(X) \
	X(0, COPY_HTOH) \
	X(1, COPY_HTOD) \
	X(2, COPY_DTOH) \
	X(3, COPY_DTOD) \
	X(1024, COPY_DTOD)

/*
 * HIP_MEMCPY3D; hipMemcpy3DParms, which has the kind instead of the types. Where an array takes
 * part in the latter, its width is in elements, whose size is not known here: 1 byte.
 */
#define COPY_3D_LAYOUTS(X) X(32, 112, 160) X(152, 0, 128)

#endif
