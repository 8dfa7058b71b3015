/* SPDX-License-Identifier: Apache-2.0 */

/* A CUDA runtime in front of the simulated one whose cudaMalloc asks the driver twice. */
#include <stddef.h>

int cudaMallocManaged(void **, size_t, unsigned);
int cudaFree(void *);

int cudaMalloc(void **p, size_t bytes)
{
	int r = cudaMallocManaged(p, bytes, 1);
	return r ? r : cudaFree(*p) || cudaMallocManaged(p, bytes, 1);
}
