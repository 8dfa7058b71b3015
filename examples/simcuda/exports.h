/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_EXPORTS_H
#define SIMCUDA_EXPORTS_H

/*
 * exports: the driver entries besides those of MEMORY_APIS and DRIVER_CALLS, which a ctypes
 * workload or another client needs before its allocations. They do not change who holds memory,
 * so they are not journaled.
 */
#define OTHER_APIS(X)                   \
	X(cuInit)                       \
	X(cuDriverGetVersion)           \
	X(cuGetProcAddress)             \
	X(cuGetProcAddress_v2)          \
	X(cuGetErrorName)               \
	X(cuGetErrorString)             \
	X(cuDeviceGet)                  \
	X(cuDeviceGetCount)             \
	X(cuDeviceGetName)              \
	X(cuDeviceGetAttribute)         \
	X(cuDeviceGetUuid)              \
	X(cuDeviceGetUuid_v2)           \
	X(cuDeviceGetPCIBusId)          \
	X(cuDeviceTotalMem)             \
	X(cuDeviceTotalMem_v2)          \
	X(cuDevicePrimaryCtxGetState)   \
	X(cuDevicePrimaryCtxSetFlags)   \
	X(cuDevicePrimaryCtxSetFlags_v2) \
	X(cuDeviceSetMemPool)           \
	X(cuCtxGetCurrent)              \
	X(cuCtxGetApiVersion)           \
	X(cuMemGetInfo)                 \
	X(cuMemGetInfo_v2)              \
	X(cuMemGetAddressRange_v2)      \
	X(cuMemAddressReserve)          \
	X(cuMemAddressFree)             \
	X(cuMemSetAccess)               \
	X(cuMemGetAllocationGranularity) \
	X(cuMemExportToShareableHandle) \
	X(cuMemPoolDestroy)             \
	X(cuMemPoolTrimTo)              \
	X(cuMemPoolSetAttribute)        \
	X(cuMemHostGetDevicePointer_v2) \
	X(cuPointerGetAttribute)        \
	X(cuStreamCreate)               \
	X(cuStreamCreateWithPriority)   \
	X(cuStreamDestroy_v2)           \
	X(cuEventCreate)                \
	X(cuEventDestroy_v2)            \
	X(cuGraphDestroy)               \
	X(cuGraphExecDestroy)           \
	X(cuThreadExchangeStreamCaptureMode) \
	X(cuDeviceCanAccessPeer) \
	X(cuCtxEnablePeerAccess) \
	X(cuCtxGetStreamPriorityRange) \
	X(cuMemHostGetFlags) \
	X(cuMemPoolGetAttribute) \
	X(cuMemPoolSetAccess) \
	X(cuPointerGetAttributes) \
	X(cuIpcGetMemHandle) \
	X(cuIpcOpenMemHandle_v2) \
	X(cuIpcCloseMemHandle) \
	X(cuIpcGetEventHandle) \
	X(cuIpcOpenEventHandle) \
	X(cuStreamGetPriority) \
	X(cuStreamGetFlags) \
	X(cuStreamGetCtx) \
	X(cuStreamIsCapturing) \
	X(cuStreamIsCapturing_ptsz) \
	X(cuStreamGetCaptureInfo_v2) \
	X(cuStreamGetCaptureInfo_v2_ptsz) \
	X(cuStreamWriteValue32) \
	X(cuStreamWriteValue32_v2) \
	X(cuEventElapsedTime) \
	X(cuGraphGetNodes) \
	X(cuGraphDebugDotPrint) \
	X(cuLibraryGetModule) \
	X(cuFuncGetAttribute) \
	X(cuFuncSetAttribute) \
	X(cuFuncSetCacheConfig) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
	X(cuLinkCreate_v2) \
	X(cuLinkAddData_v2) \
	X(cuLinkDestroy) \
	X(cuTensorMapEncodeTiled) \
	X(cuMulticastCreate) \
	X(cuMulticastAddDevice) \
	X(cuMulticastBindMem) \
	X(cuProfilerStart) \
	X(cuProfilerStop)

#endif
