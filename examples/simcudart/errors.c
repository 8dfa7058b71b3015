/* SPDX-License-Identifier: Apache-2.0 */

/* Errors: those of the driver have the same numbers here, and other names. */
#include "runtime.h"

static const struct {
	cudaError_t code;
	const char *name, *text;
} errors[] = {
	{cudaSuccess, "cudaSuccess", "no error"},
	{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
	{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
	{cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
	{cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
	 "CUDA driver version is insufficient for CUDA runtime version"},
	{cudaErrorMissingConfiguration, "cudaErrorMissingConfiguration",
	 "__global__ function call is not configured"},
	{cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
	{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
	{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
	{cudaErrorInvalidContext, "cudaErrorDeviceUninitialized", "invalid device context"},
	{400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
	{500, "cudaErrorSymbolNotFound", "named symbol not found"},
	{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
	{704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
	{709, "cudaErrorContextIsDestroyed", "context is destroyed"},
	{712, "cudaErrorHostMemoryAlreadyRegistered",
	 "part or all of the requested memory range is already mapped"},
	{713, "cudaErrorHostMemoryNotRegistered",
	 "pointer does not correspond to a registered memory region"},
	{cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
	{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

EXPORT const char *cudaGetErrorName(cudaError_t code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].code == code)
			return errors[i].name;
	return "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(cudaError_t code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].code == code)
			return errors[i].text;
	return "unrecognized error code";
}

EXPORT cudaError_t cudaGetLastError(void)
{
	cudaError_t r = thread.last;
	thread.last = cudaSuccess;
	return r;
}

EXPORT cudaError_t cudaPeekAtLastError(void)
{
	return thread.last;
}
