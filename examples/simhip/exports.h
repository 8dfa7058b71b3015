/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMHIP_EXPORTS_H
#define SIMHIP_EXPORTS_H

/* exports: what a program needs besides the functions of bpf/hip/apis.h and launch_apis.h. Not
 * in the journal, except __hipRegisterFunction. */
#define HIP_OTHER_APIS(X) \
	X(hipInit) \
	X(hipGetErrorName) \
	X(hipGetErrorString) \
	X(hipMemGetInfo) \
	X(hipDeviceTotalMem) \
	X(hipCtxGetCurrent) \
	X(hipCtxPopCurrent) \
	X(hipCtxDestroy) \
	X(hipDevicePrimaryCtxRelease) \
	X(hipMemAddressReserve) \
	X(hipMemSetAccess) \
	X(hipMemGetAllocationGranularity) \
	X(hipMemExportToShareableHandle) \
	X(hipMemPoolDestroy) \
	X(hipMemPoolTrimTo) \
	X(hipMemPoolGetAttribute) \
	X(hipMemPoolSetAttribute) \
	X(hipMemPoolSetAccess) \
	X(hipStreamCreate) \
	X(hipStreamCreateWithFlags) \
	X(hipStreamDestroy) \
	X(hipStreamIsCapturing) \
	X(hipEventCreate) \
	X(hipEventCreateWithFlags) \
	X(hipEventDestroy) \
	X(hipEventElapsedTime) \
	X(hipGraphDestroy) \
	X(hipGraphExecDestroy) \
	X(hipGraphGetNodes) \
	X(hipThreadExchangeStreamCaptureMode) \
	X(__hipRegisterFunction) \
	X(__hipRegisterFatBinary) \
	X(__hipUnregisterFatBinary) \
	X(__hipPushCallConfiguration) \
	X(__hipPopCallConfiguration)

#endif
