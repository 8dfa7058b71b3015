/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMTORCH_DRIVER_H
#define SIMTORCH_DRIVER_H

/* driver: the functions of libcuda.so.1 that the allocator calls. All are called under
 * its lock; an int result is a CUresult, 0 for success. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../simcuda/cuda.h"

#define MAX_DEVICES 16

extern struct driver {
	int (*init)(unsigned);
	int (*retain)(void **, int);
	int (*current)(void **);
	int (*set)(void *);
	int (*total)(size_t *, int);
	int (*alloc)(uint64_t *, size_t);
	int (*free)(uint64_t);
	int (*alloc_async)(uint64_t *, size_t, void *);
	int (*free_async)(uint64_t, void *);
	int (*reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
	int (*unreserve)(uint64_t, size_t);
	int (*create)(uint64_t *, size_t, const CUmemAllocationProp *, unsigned long long);
	int (*release)(uint64_t);
	int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
	int (*unmap)(uint64_t, size_t);
	int (*access)(uint64_t, size_t, const void *, size_t);
	/* Called by operators: operators.c. */
	int (*device)(int *);
	int (*state)(int, unsigned *, int *);
	int (*attribute)(int *, int, void *);
	int (*load)(void **, const void *);
	int (*function)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      void *, void **, void **);
	int (*launch_ex)(const void *, void *, void **, void **);
	int (*copy)(uint64_t, uint64_t, size_t, void *);
	int (*fill)(uint64_t, unsigned char, size_t, void *);
	void (*tag)(uint64_t); /* simcuda's; NULL: another driver */
	void *context[MAX_DEVICES];
} driver;

/* Finds them, once. It ends the process where there is none. */
void driver_start(void);
/* Makes the device's primary context current where it is not, as a CUDAGuard does.
 * False: there is no such device. */
bool driver_use(int device);

#endif
