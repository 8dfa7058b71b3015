/* SPDX-License-Identifier: Apache-2.0 */
#include "../simcuda/cuda.h"

/* The errors that this library returns, by their names in hip_runtime_api.h. */
static const struct {
	int error;
	const char *name;
} errors[] = {
	{0, "hipSuccess"},
	{1, "hipErrorInvalidValue"},
	{2, "hipErrorOutOfMemory"},
	{98, "hipErrorInvalidDeviceFunction"},
	{101, "hipErrorInvalidDevice"},
	{201, "hipErrorInvalidContext"},
	{400, "hipErrorInvalidHandle"},
	{600, "hipErrorNotReady"},
	{712, "hipErrorHostMemoryAlreadyRegistered"},
	{713, "hipErrorHostMemoryNotRegistered"},
	{801, "hipErrorNotSupported"},
	{999, "hipErrorUnknown"},
};

const char *impl_hipGetErrorName(int error)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].error == error)
			return errors[i].name;
	return "hipErrorUnknown";
}

const char *impl_hipGetErrorString(int error)
{
	return impl_hipGetErrorName(error);
}
