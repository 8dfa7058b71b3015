/* SPDX-License-Identifier: Apache-2.0 */

/*
 * facts: makes many contexts, and physical memory that is mapped.
 *
 *   facts LIBCUDA COUNT
 *
 * Retains the primary context of each device, and makes COUNT contexts and as many mapped handles;
 * frees the memory, and makes it again. Before each of the two it prints "ready" and reads a line,
 * and ends with its input.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

#define UNIT (2u << 20)

static void *driver;

static void *symbol(const char *name)
{
	void *f = dlsym(driver, name);

	if (!f) {
		fprintf(stderr, "facts: %s\n", dlerror());
		exit(1);
	}
	return f;
}

/* Arguments have the width of the parameters. */
#define CU(name, ...) \
	do { \
		CUresult result = ((CUresult(*)())symbol(#name))(__VA_ARGS__); \
		if (result) { \
			fprintf(stderr, "facts: " #name ": error %d\n", result); \
			exit(1); \
		} \
	} while (0)

static void wait_for_line(void)
{
	puts("ready");
	fflush(stdout);
	for (int c = 0; c != '\n';)
		if ((c = getchar()) == EOF)
			exit(0);
}

static void contexts(int count)
{
	CUcontext context;
	int devices;

	CU(cuInit, 0);
	CU(cuDeviceGetCount, &devices);
	for (int d = 0; d < devices; d++)
		CU(cuDevicePrimaryCtxRetain, &context, d);
	for (int i = 0; i < count; i++) {
		CU(cuCtxCreate_v2, &context, 0, i % devices);
		CU(cuCtxPopCurrent_v2, &context);
	}
}

int main(int argc, char **argv)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	int count = argc == 3 ? atoi(argv[2]) : 0;
	CUmemGenericAllocationHandle *handles = calloc(count, sizeof(*handles));
	CUdeviceptr at;

	driver = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!driver || !handles)
		return 2;
	wait_for_line();
	contexts(count);
	CU(cuMemAddressReserve, &at, (size_t)count * UNIT, (size_t)0, (CUdeviceptr)0, 0ull);
	for (int round = 0;; round++) {
		for (int i = 0; i < count; i++) {
			CU(cuMemCreate, &handles[i], (size_t)UNIT, &prop, 0ull);
			CU(cuMemMap, at + (uint64_t)i * UNIT, (size_t)UNIT, (size_t)0, handles[i],
			   0ull);
		}
		wait_for_line();
		CU(cuMemUnmap, at, (size_t)count * UNIT);
		for (int i = 0; i < count; i++)
			CU(cuMemRelease, handles[i]);
	}
}
