/* SPDX-License-Identifier: Apache-2.0 */

/*
 * bench: the cost of a pair of cuMemAlloc_v2 and cuMemFree_v2, with and without a tracer.
 * On the simulated driver the pair itself costs far less than a probe.
 *
 *   bench [-l LIBCUDA] [-n PAIRS] [-t THREADS] [-r PAIRS/S] [-s SIZE] [-p REPEATS]
 *         [-d DEPTH] [-k] [-c]
 *
 * Prints one line per repeat and the best: wall time of a thread per pair, in ns.
 * With -r each thread makes that many pairs a second and only the time inside the
 * calls is counted. With -d the calls are made from that many functions deep,
 * which have frame pointers. With -k it measures a kernel launch instead of a pair.
 * With -c each thread publishes a span (OpenTelemetry's thread context, OTEP 4947).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int (*mem_alloc)(uint64_t *, size_t);
static int (*mem_free)(uint64_t);
static int (*launch)(uint64_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		     unsigned, void *, void **, void **);
static int (*set_current)(void *);
static uint64_t kernel; /* not 0: launches */
static void *context;
static long pairs = 1000000, rate;
static size_t size = 4096;
static int depth = 1, publishes;

/* What readers outside of the process look for, and one span for it. */
__attribute__((visibility("default"))) __thread void *otel_thread_ctx_v1;
static struct {
	uint8_t trace_id[16], span_id[8], valid, flags;
	uint16_t attributes_bytes;
} span = {{1}, {2}, 1, 1, 0};

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pair(void)
{
	uint64_t p;
	if (kernel ? launch(kernel, 80, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL) :
		     (mem_alloc(&p, size) || mem_free(p))) {
		fprintf(stderr, "bench: a driver call failed\n");
		exit(1);
	}
}

/* Calls pair() below `frames` additional frames. */
static __attribute__((noinline)) void descend(int frames)
{
	if (frames > 1)
		descend(frames - 1);
	else
		pair();
	__asm__ volatile(""); /* no tail call: the frame stays */
}

/* Returns the time of one pair in ns, through its argument. */
static void *work(void *result)
{
	uint64_t begin, spent = 0;

	if (set_current(context))
		exit(1);
	otel_thread_ctx_v1 = publishes ? &span : NULL;
	begin = now();
	if (!rate) {
		for (long i = 0; i < pairs; i++)
			descend(depth);
		spent = now() - begin;
	} else {
		for (long i = 0; i < pairs; i++) {
			uint64_t at = begin + (uint64_t)i * 1000000000u / (uint64_t)rate;
			struct timespec due = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
			uint64_t from = now();
			descend(depth);
			spent += now() - from;
		}
	}
	*(double *)result = (double)spent / (double)pairs;
	return NULL;
}

static void *symbol(void *library, const char *name)
{
	void *f = dlsym(library, name);
	if (!f) {
		fprintf(stderr, "bench: %s\n", dlerror());
		exit(1);
	}
	return f;
}

int main(int argc, char **argv)
{
	const char *path = "libcuda.so.1";
	int threads = 1, repeats = 3, launches = 0, option;

	while ((option = getopt(argc, argv, "l:n:t:r:s:p:d:kc")) != -1) {
		switch (option) {
		case 'l': path = optarg; break;
		case 'n': pairs = atol(optarg); break;
		case 't': threads = atoi(optarg); break;
		case 'r': rate = atol(optarg); break;
		case 's': size = strtoul(optarg, NULL, 0); break;
		case 'p': repeats = atoi(optarg); break;
		case 'd': depth = atoi(optarg); break;
		case 'k': launches = 1; break;
		case 'c': publishes = 1; break;
		default: return 2;
		}
	}
	if (pairs < 1 || threads < 1 || threads > 256 || repeats < 1 || rate < 0) {
		fprintf(stderr, "bench: -n, -p from 1, -t from 1 to 256, -r from 0\n");
		return 2;
	}
	void *library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "bench: %s\n", dlerror());
		return 1;
	}
	int (*init)(unsigned) = (int (*)(unsigned))symbol(library, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))symbol(library, "cuDevicePrimaryCtxRetain");
	set_current = (int (*)(void *))symbol(library, "cuCtxSetCurrent");
	mem_alloc = (int (*)(uint64_t *, size_t))symbol(library, "cuMemAlloc_v2");
	mem_free = (int (*)(uint64_t))symbol(library, "cuMemFree_v2");
	if (init(0) || retain(&context, 0)) {
		fprintf(stderr, "bench: no device\n");
		return 1;
	}
	if (launches) {
		int (*load)(uint64_t *, const char *) = (int (*)(uint64_t *, const char *))symbol(library, "cuModuleLoadData");
		int (*get)(uint64_t *, uint64_t, const char *) =
			(int (*)(uint64_t *, uint64_t, const char *))symbol(library, "cuModuleGetFunction");
		uint64_t module;

		*(void **)&launch = symbol(library, "cuLaunchKernel");
		if (set_current(context) || load(&module, "image") || get(&kernel, module, "bench_kernel")) {
			fprintf(stderr, "bench: no kernel\n");
			return 1;
		}
	}
	double best = 0;
	for (int r = 0; r < repeats; r++) {
		pthread_t t[256];
		double ns[256], sum = 0;
		for (int i = 0; i < threads; i++)
			pthread_create(&t[i], NULL, work, &ns[i]);
		for (int i = 0; i < threads; i++) {
			pthread_join(t[i], NULL);
			sum += ns[i];
		}
		printf("%.1f ns per pair, %d threads\n", sum / threads, threads);
		fflush(stdout);
		if (r == 0 || sum / threads < best)
			best = sum / threads;
	}
	printf("best: %.1f ns per pair\n", best);
	return 0;
}
