/* SPDX-License-Identifier: Apache-2.0 */

/*
 * runtime: the parts of libcudart and libcublas that a test of launches needs, as two
 * libraries of one source. Linked with the simulated driver, which does the work.
 */
#include <stddef.h>
#include <stdint.h>

int cuLaunchKernel(uint64_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
		   unsigned bz, unsigned shared, uint64_t s, void **parameters, void **extra);
int cuMemcpyHtoDAsync_v2(uint64_t to, uint64_t from, size_t n, uint64_t s);

#ifdef RUNTIME
/* The kernel of a host stub: the same one for all stubs. */
static uint64_t kernel;

void simcudart_register(uint64_t handle)
{
	kernel = handle;
}

typedef struct {
	unsigned x, y, z;
} dim3;

int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
		     uint64_t stream)
{
	if (!function)
		return 98; /* cudaErrorInvalidDeviceFunction, before the driver is called */
	return cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
			      (unsigned)shared, stream, arguments, NULL);
}
#else
int cublasSgemm_v2(uint64_t handle, uint64_t kernel)
{
	int r = cuMemcpyHtoDAsync_v2(4096, 4096, 64, 0);

	return r ? r : cuLaunchKernel(kernel, 8, 8, 1, 16, 16, 1, 0, handle, NULL, NULL);
}

/* As the real one, which ends in other entry points of its own. */
int cublasGemmEx(uint64_t handle, uint64_t kernel)
{
	return kernel ? cublasSgemm_v2(handle, kernel) : 7; /* CUBLAS_STATUS_INVALID_VALUE */
}
#endif
