/* SPDX-License-Identifier: Apache-2.0 */

/*
 * loop: a thread that launches kernels at a pace, on the simulated driver. Each run has a
 * kernel of its own, and some of its launches are followed by a copy.
 *
 *   loop LIBCUDA LAUNCHES/S
 *
 * Between launches it computes, for some two thirds of the time, and sleeps where it is
 * ahead. Reads a line for each run: how many milliseconds it lasts; and prints what it did:
 * launches, copies, bytes, nanoseconds of wall and of CPU time. Ends with its input.
 * With LAUNCHES/S 0 it does neither compute nor pause.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *symbol(void *library, const char *name)
{
	void *f = dlsym(library, name);

	if (!f) {
		fprintf(stderr, "loop: %s\n", dlerror());
		exit(1);
	}
	return f;
}

static volatile uint64_t result;

static void compute(uint64_t turns)
{
	uint64_t x = 1;

	for (uint64_t i = 0; i < turns; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	result = x;
}

/* Turns of compute() that take a nanosecond, by the fastest of some. */
static double turns_of_ns(void)
{
	double best = 0;

	for (int i = 0; i < 20; i++) {
		uint64_t begin = clock_ns(CLOCK_MONOTONIC);
		double turns;

		compute(100000);
		turns = 100000.0 / (double)(clock_ns(CLOCK_MONOTONIC) - begin);
		if (turns > best)
			best = turns;
	}
	return best;
}

/* Launches come in groups, after each of which the thread reads the clock. */
#define GROUP 20

int main(int argc, char **argv)
{
	void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	uint64_t rate, module, work = 0, seed = 88172645463325252u;
	void *context;
	int run = 0, ms;

	if (!library) {
		fprintf(stderr, "loop: LIBCUDA LAUNCHES/S\n");
		return 2;
	}
	rate = strtoull(argv[2], NULL, 10);
	if (rate)
		work = (uint64_t)(turns_of_ns() * 0.65e9 / (double)rate);
	int (*init)(unsigned) = (int (*)(unsigned))symbol(library, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))symbol(library, "cuDevicePrimaryCtxRetain");
	int (*set_current)(void *) = (int (*)(void *))symbol(library, "cuCtxSetCurrent");
	int (*load)(uint64_t *, const char *) = (int (*)(uint64_t *, const char *))symbol(library, "cuModuleLoadData");
	int (*get)(uint64_t *, uint64_t, const char *) =
		(int (*)(uint64_t *, uint64_t, const char *))symbol(library, "cuModuleGetFunction");
	int (*launch)(uint64_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      void *, void **, void **);
	int (*copy)(uint64_t, const void *, size_t, void *) =
		(int (*)(uint64_t, const void *, size_t, void *))symbol(library, "cuMemcpyHtoDAsync_v2");
	int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))symbol(library, "cuMemAlloc_v2");
	static char from[1 << 16];
	uint64_t to;

	*(void **)&launch = symbol(library, "cuLaunchKernel");
	if (init(0) || retain(&context, 0) || set_current(context) || load(&module, "image") ||
	    alloc(&to, sizeof(from))) {
		fprintf(stderr, "loop: no device\n");
		return 1;
	}
	while (scanf("%d", &ms) == 1) {
		uint64_t begin, end, cpu, kernel, launches = 0, copies = 0, bytes = 0;
		struct timespec pause = {0, 200000};
		char name[32];

		snprintf(name, sizeof(name), "kernel_%d", run++);
		if (get(&kernel, module, name))
			return 1;
		cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		begin = clock_ns(CLOCK_MONOTONIC);
		end = begin + (uint64_t)ms * 1000000u;
		for (uint64_t now = begin; now < end; now = clock_ns(CLOCK_MONOTONIC)) {
			if (rate && launches * 1000000000u > (now - begin) * rate) {
				nanosleep(&pause, NULL); /* ahead */
				continue;
			}
			for (int i = 0; i < GROUP; i++) {
				if (launch(kernel, 80, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL))
					return 1;
				compute(work);
				seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
				if (seed % 4 == 0) {
					size_t size = seed / 4 % sizeof(from) + 1;

					if (copy(to, from, size, NULL))
						return 1;
					copies++;
					bytes += size;
				}
			}
			launches += GROUP;
		}
		printf("%lu %lu %lu %lu %lu\n", launches, copies, bytes,
		       clock_ns(CLOCK_MONOTONIC) - begin, clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu);
		fflush(stdout);
	}
	return 0;
}
