/* SPDX-License-Identifier: Apache-2.0 */

/*
 * facts: makes many contexts, and physical memory that is mapped.
 *
 *   facts LIBCUDA COUNT [destroy]
 *
 * Retains the primary context of each device, and makes COUNT contexts and as many mapped handles;
 * frees the memory, destroys the contexts with "destroy", and makes the memory again. Before each of
 * the two, and at the end, it waits (tenant.h).
 */
#include "tenant.h"

#define UNIT (2u << 20)

static void make_contexts(CUcontext *contexts, int count)
{
	CUcontext primary;
	int devices;

	CU(cuInit, 0);
	CU(cuDeviceGetCount, &devices);
	for (int d = 0; d < devices; d++)
		CU(cuDevicePrimaryCtxRetain, &primary, d);
	for (int i = 0; i < count; i++) {
		CU(cuCtxCreate_v2, &contexts[i], 0, i % devices);
		CU(cuCtxPopCurrent_v2, &contexts[i]);
	}
}

int main(int argc, char **argv)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	int count = argc >= 3 ? atoi(argv[2]) : 0, destroyed = argc == 4 ? count : 0;
	CUmemGenericAllocationHandle *handles = calloc(count, sizeof(*handles));
	CUcontext *contexts = calloc(count, sizeof(*contexts));
	CUdeviceptr at;

	driver = count ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!driver || !handles || !contexts)
		return 2;
	wait_for_line();
	make_contexts(contexts, count);
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
		for (int i = 0; i < destroyed && !round; i++)
			CU(cuCtxDestroy_v2, contexts[i]);
	}
}
