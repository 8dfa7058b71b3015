/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An honest tenant whose processor time is measured: step DRIVER. It prints "ready". For each line with a
 * number it makes so many steps, each some milliseconds of arithmetic, 10 allocations and their frees,
 * and prints the median processor time of a step in nanoseconds.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALLS 10
#define MOST_STEPS 10000
#define TURNS 4000000

static int (*cu_alloc)(unsigned long *pointer, size_t bytes);
static int (*cu_free)(unsigned long pointer);
static volatile unsigned long result;

static void compute(void)
{
	unsigned long x = 88172645463325252UL;

	for (int n = 0; n < TURNS; n++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	result = x;
}

static void step(void)
{
	unsigned long pointers[CALLS];

	compute();
	for (int n = 0; n < CALLS; n++)
		if (cu_alloc(&pointers[n], 1 << 20))
			exit(1);
	for (int n = 0; n < CALLS; n++)
		if (cu_free(pointers[n]))
			exit(1);
}

static long processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static long took[MOST_STEPS];
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	unsigned long context;
	char line[32];

	if (!library)
		return 2;
	int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(library, "cuInit");
	int (*retain)(unsigned long *, int) =
		(int (*)(unsigned long *, int))dlsym(library, "cuDevicePrimaryCtxRetain");
	int (*set)(unsigned long) = (int (*)(unsigned long))dlsym(library, "cuCtxSetCurrent");

	cu_alloc = (int (*)(unsigned long *, size_t))dlsym(library, "cuMemAlloc_v2");
	cu_free = (int (*)(unsigned long))dlsym(library, "cuMemFree_v2");
	if (!init || !retain || !set || !cu_alloc || !cu_free || init(0) || retain(&context, 0) ||
	    set(context))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int steps = atoi(line);

		if (steps < 1 || steps > MOST_STEPS)
			return 2;
		for (int n = 0; n < steps; n++) {
			long before = processor_ns();

			step();
			took[n] = processor_ns() - before;
		}
		qsort(took, (size_t)steps, sizeof(took[0]), compare);
		printf("%ld\n", took[steps / 2]);
		fflush(stdout);
	}
	return 0;
}
