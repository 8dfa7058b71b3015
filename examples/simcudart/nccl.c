/* SPDX-License-Identifier: Apache-2.0 */

/* What NCCL imports besides: the driver's functions by name, kernels by symbol. It adds its work
 * to a program's graphs node by node, which is not supported. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "runtime.h"

/* One that the driver does not have is no error: *result has it, and *out is null. */
static cudaError_t entry_point(const char *symbol, void **out, unsigned long long flags,
			       int *result)
{
	cudaError_t (*get)(const char *, void **, int, uint64_t, int *);
	cudaError_t r;

	*(void **)&get = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"); /* loaded globally */
	r = get(symbol, out, 12040, flags, result);
	return r == cudaErrorSymbolNotFound ? cudaSuccess : r;
}

DRIVER_ENTRY(cudaGetDriverEntryPoint,
	     (const char *symbol, void **out, unsigned long long flags, int *result),
	     entry_point(symbol, out, flags, result))
DRIVER_ENTRY(cudaGetFuncBySymbol, (uint64_t *out, const void *host),
	     kernel_function(host, device_of_current(), out))
DRIVER_ENTRY(cudaDeviceSetLimit, (int limit, size_t value), ((void)limit, (void)value, cudaSuccess))

#define REFUSED(symbol) \
	EXPORT cudaError_t symbol(void) \
	{ \
		return cudaErrorNotSupported; \
	}
REFUSED(cudaUserObjectCreate)
REFUSED(cudaGraphRetainUserObject)
REFUSED(cudaStreamUpdateCaptureDependencies)
REFUSED(cudaGraphAddKernelNode)
REFUSED(cudaGraphAddHostNode)
REFUSED(cudaGraphAddEventWaitNode)
REFUSED(cudaGraphAddEventRecordNode)
