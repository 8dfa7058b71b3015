/* SPDX-License-Identifier: Apache-2.0 */

/*
 * handles: threads that create, map, release and unmap physical memory as fast as they
 * can, so that the driver gives the number of a handle to one thread while the call that
 * ended it has not returned yet in another.
 *
 *   handles LIBCUDA THREADS ROUNDS
 *
 * Prints the bytes and the number of the memory that it created, all of which it freed,
 * and ends with its input.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

#define UNIT (2u << 20)

static struct {
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			   unsigned long long);
	CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
			unsigned long long);
	CUresult (*retain)(CUmemGenericAllocationHandle *, void *);
	CUresult (*release)(CUmemGenericAllocationHandle);
	CUresult (*unmap)(CUdeviceptr, size_t);
} cu;

static CUdeviceptr reserved;
static long rounds;

static void *symbol(void *library, const char *name)
{
	void *f = dlsym(library, name);

	if (!f) {
		fprintf(stderr, "handles: %s\n", dlerror());
		exit(1);
	}
	return f;
}

static void must(const char *what, CUresult result)
{
	if (result) {
		fprintf(stderr, "handles: %s: error %d\n", what, result);
		exit(1);
	}
}

static void *work(void *arg)
{
	CUdeviceptr at = reserved + (uintptr_t)arg * UNIT;
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle handle, again;

	for (long i = 0; i < rounds; i++) {
		must("cuMemCreate", cu.create(&handle, UNIT, &prop, 0));
		must("cuMemMap", cu.map(at, UNIT, 0, handle, 0));
		if (i % 4 == 0) {
			must("cuMemRetainAllocationHandle", cu.retain(&again, (void *)at));
			must("cuMemRelease", cu.release(again));
		}
		if (i % 2 == 0) {
			must("cuMemRelease", cu.release(handle));
			must("cuMemUnmap", cu.unmap(at, UNIT));
		} else {
			must("cuMemUnmap", cu.unmap(at, UNIT));
			must("cuMemRelease", cu.release(handle));
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc == 4 ? atol(argv[2]) : 0;
	void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
	CUresult (*init)(unsigned),
		(*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
	pthread_t *all = calloc(threads, sizeof(*all));

	if (!library || threads <= 0 || !all) {
		fprintf(stderr, "handles LIBCUDA THREADS ROUNDS\n");
		return 1;
	}
	rounds = atol(argv[3]);
	init = symbol(library, "cuInit");
	reserve = symbol(library, "cuMemAddressReserve");
	cu.create = symbol(library, "cuMemCreate");
	cu.map = symbol(library, "cuMemMap");
	cu.retain = symbol(library, "cuMemRetainAllocationHandle");
	cu.release = symbol(library, "cuMemRelease");
	cu.unmap = symbol(library, "cuMemUnmap");
	must("cuInit", init(0));
	must("cuMemAddressReserve", reserve(&reserved, threads * UNIT, 0, 0, 0));
	for (long i = 0; i < threads; i++)
		if (pthread_create(&all[i], NULL, work, (void *)i))
			return 1;
	for (long i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	printf("%ld %ld\n", threads * rounds * UNIT, threads * rounds);
	fflush(stdout);
	getchar();
	return 0;
}
