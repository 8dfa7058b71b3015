/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver calls of a PyTorch operator besides memory: those of the CUDA runtime, in about
 * the proportions of a real training step (examples/pytorch), where 200 launches come with
 * 2,545 cuCtxGetDevice and 871 cuDevicePrimaryCtxGetState.
 */
#include <string.h>

#include "driver.h"

#define EXPORTED __attribute__((visibility("default")))

/* Calls for each launch. */
enum { DEVICES = 12, STATES = 4, ATTRIBUTES = 2 };

/* CUlaunchConfig of the driver API. */
struct launch_config {
	unsigned grid[3], block[3], shared_bytes;
	void *stream, *attributes;
	unsigned attribute_count;
};

/* A function of the current context; there are few, and modules stay loaded. */
static __thread struct {
	void *context, *function;
} kernel;

/* The smallest kernel that a real driver loads, too. */
static const char program[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
			      ".visible .entry simtorch_operator() { ret; }\n";

/* Launches a kernel on the device: as an element-wise operator, or, with `is_matrix`, as
 * cuBLAS does. 0, or a CUresult. */
EXPORTED int simtorch_launch(int device, int is_matrix)
{
	struct launch_config config = {.grid = {32, 1, 1}, .block = {128, 1, 1}};
	void *context = NULL, *module;
	unsigned flags;
	int value, r = 0;

	if (!driver.launch)
		driver_start();
	if (!driver_use(device))
		return 101; /* CUDA_ERROR_INVALID_DEVICE */
	driver.current(&context);
	if (!kernel.function || kernel.context != context) {
		kernel.context = context;
		kernel.function = NULL;
		if ((r = driver.load(&module, program)) ||
		    (r = driver.function(&kernel.function, module, "simtorch_operator")))
			return r;
	}
	for (int i = 0; i < DEVICES; i++)
		driver.device(&value);
	for (int i = 0; i < STATES; i++)
		driver.state(device, &flags, &value);
	for (int i = 0; i < ATTRIBUTES; i++)
		driver.attribute(&value, i, kernel.function);
	if (is_matrix)
		return driver.launch_ex(&config, kernel.function, NULL, NULL);
	return driver.launch(kernel.function, 32, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL);
}

/* Copies between two places of a device, and fills one with zeroes. 0, or a CUresult. */
EXPORTED int simtorch_copy(int device, void *to, void *from, uint64_t bytes)
{
	if (!driver.copy)
		driver_start();
	return driver_use(device) ? driver.copy((uint64_t)to, (uint64_t)from, bytes, NULL) : 101;
}

EXPORTED int simtorch_zero(int device, void *to, uint64_t bytes)
{
	if (!driver.fill)
		driver_start();
	return driver_use(device) ? driver.fill((uint64_t)to, 0, bytes, NULL) : 101;
}
