/* SPDX-License-Identifier: Apache-2.0 */

/* A driver in front of the simulated one that does other things than it says. */
#include <stddef.h>
#include <stdint.h>

int cuMemAllocPitch_v2(uint64_t *, size_t *, size_t, size_t, unsigned);

/* Allocates one row more than requested. */
int cuMemAlloc_v2(uint64_t *p, size_t bytes)
{
	size_t pitch;
	return cuMemAllocPitch_v2(p, &pitch, 512, bytes / 512 + 1, 4);
}

/* Gives a function that is not exported. */
static int other(void)
{
	return 0;
}

int cuGetProcAddress_v2(const char *name, void **p, int version, uint64_t flags, int *found)
{
	(void)name, (void)version, (void)flags, (void)found;
	*p = (void *)other;
	return 0;
}

/* Says that half is free. */
int cuMemGetInfo_v2(size_t *available, size_t *total)
{
	int cuMemGetInfo(size_t *, size_t *);
	int r = cuMemGetInfo(available, total);
	*available /= 2;
	return r;
}

int cuLaunchKernelEx(void)
{
	return 0;
}
