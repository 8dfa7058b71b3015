/* SPDX-License-Identifier: Apache-2.0 */

/*
 * threads: allocates once in each of many threads, which go on to live.
 *
 *   threads LIBCUDA COUNT
 *
 * It waits before it starts them, when each has allocated, and when all have ended (tenant.h).
 */
#include <pthread.h>

#include "tenant.h"

static pthread_barrier_t allocated, over;
static CUcontext context;

static void *work(void *arg)
{
	CUdeviceptr at;

	CU(cuCtxSetCurrent, context);
	CU(cuMemAlloc_v2, &at, (size_t)4096);
	pthread_barrier_wait(&allocated);
	pthread_barrier_wait(&over);
	return arg;
}

int main(int argc, char **argv)
{
	int count = argc == 3 ? atoi(argv[2]) : 0;
	pthread_t *threads = calloc(count, sizeof(*threads));

	driver = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!driver || !threads || pthread_barrier_init(&allocated, NULL, count + 1) ||
	    pthread_barrier_init(&over, NULL, count + 1))
		return 2;
	wait_for_line();
	CU(cuInit, 0);
	CU(cuDevicePrimaryCtxRetain, &context, 0);
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, work, NULL))
			return 1;
	pthread_barrier_wait(&allocated);
	wait_for_line();
	pthread_barrier_wait(&over);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	wait_for_line();
}
