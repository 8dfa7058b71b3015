/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMHIP_EXPORTS_H
#define SIMHIP_EXPORTS_H

/* exports: what a program needs besides the functions of bpf/hip/apis.h. Not in the journal. */
#define HIP_OTHER_APIS(X) \
	X(hipInit) \
	X(hipGetDeviceCount) \
	X(hipGetErrorName) \
	X(hipGetErrorString) \
	X(hipDeviceSynchronize) \
	X(hipMemGetInfo) \
	X(hipCtxGetCurrent) \
	X(hipCtxPopCurrent) \
	X(hipCtxDestroy) \
	X(hipDevicePrimaryCtxRelease) \
	X(hipMemAddressReserve) \
	X(hipMemAddressFree) \
	X(hipMemSetAccess) \
	X(hipMemGetAllocationGranularity) \
	X(hipMemExportToShareableHandle) \
	X(hipMemPoolDestroy) \
	X(hipMemPoolTrimTo) \
	X(hipMemPoolGetAttribute) \
	X(hipMemPoolSetAttribute) \
	X(hipMemPoolSetAccess)

#endif
