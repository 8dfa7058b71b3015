/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that start and end: churn DRIVER PROCESSES/S SECONDS. Each is a fork that has the driver
 * mapped; one in ten has a mount namespace of its own, as a container has, and uses the GPU: 4 stacks
 * that no other process had, each for 25 allocations, of which some are freed, and 25 launches. Prints
 * "ready" and waits for a line; prints what there was: processes, containers, stacks, allocated bytes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONTAINER = 10, STACKS = 4, CALLS = 25, DEPTH = 24, MOST_RUNNING = 64 };

/* Shared with the children. */
static struct totals {
	uint64_t containers, stacks, bytes;
} *totals;

static void *library;

static void fail(const char *what)
{
	fprintf(stderr, "churn: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *function(const char *name)
{
	void *f = dlsym(library, name);

	if (!f)
		fail(name);
	return f;
}

static int (*cu_alloc)(uint64_t *pointer, size_t bytes);
static int (*cu_free)(uint64_t pointer);
static int (*cu_launch)(uint64_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			unsigned, void *, void **, void **);
static uint64_t kernel;

static void call(void)
{
	for (int n = 0; n < CALLS; n++) {
		size_t bytes = (size_t)(n + 1) << 12;
		uint64_t pointer;

		if (cu_alloc(&pointer, bytes))
			fail("cuMemAlloc");
		if (n % 2 && cu_free(pointer))
			fail("cuMemFree");
		if (cu_launch(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL))
			fail("cuLaunchKernel");
		__atomic_fetch_add(&totals->bytes, bytes, __ATOMIC_RELAXED);
		__atomic_fetch_add(&totals->stacks, 1, __ATOMIC_RELAXED);
	}
}

/* A stack for each number: which of two places calls the next level is a bit. */
__attribute__((noinline)) static void level(uint64_t number, int depth)
{
	if (depth == 0) {
		call();
	} else if (number & 1) {
		level(number >> 1, depth - 1);
		__asm__ volatile("" ::: "memory");
	} else {
		level(number >> 1, depth - 1);
		__asm__ volatile("nop" ::: "memory");
	}
}

static void use_the_gpu(uint64_t number)
{
	uint64_t context, module;
	int (*init)(unsigned) = (int (*)(unsigned))function("cuInit");
	int (*retain)(uint64_t *, int) =
		(int (*)(uint64_t *, int))function("cuDevicePrimaryCtxRetain");
	int (*set_current)(uint64_t) = (int (*)(uint64_t))function("cuCtxSetCurrent");
	int (*load)(uint64_t *, const char *) =
		(int (*)(uint64_t *, const char *))function("cuModuleLoadData");
	int (*get)(uint64_t *, uint64_t, const char *) =
		(int (*)(uint64_t *, uint64_t, const char *))function("cuModuleGetFunction");

	*(void **)&cu_alloc = function("cuMemAlloc_v2");
	*(void **)&cu_free = function("cuMemFree_v2");
	*(void **)&cu_launch = function("cuLaunchKernel");
	if (unshare(CLONE_NEWNS))
		fail("unshare");
	if (init(0) || retain(&context, 0) || set_current(context) || load(&module, "image") ||
	    get(&kernel, module, "step"))
		fail("start the driver");
	__atomic_fetch_add(&totals->containers, 1, __ATOMIC_RELAXED);
	for (uint64_t n = 0; n < STACKS; n++)
		level(number * STACKS + n, DEPTH);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t processes;
static int running;

static void reap(int at_most)
{
	int status;

	while (running > 0 && waitpid(-1, &status, running > at_most ? 0 : WNOHANG) > 0) {
		running--;
		if (status) {
			fprintf(stderr, "churn: a process ended with %d\n", status);
			exit(1);
		}
	}
}

static void start_one(void)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork");
	if (child == 0) {
		if (processes % CONTAINER == 0)
			use_the_gpu(processes / CONTAINER);
		_exit(0);
	}
	processes++;
	running++;
}

int main(int argc, char **argv)
{
	char line[8];
	uint64_t rate, began, end;

	if (argc != 4) {
		fprintf(stderr, "usage: churn DRIVER PROCESSES/S SECONDS\n");
		return 2;
	}
	rate = strtoull(argv[2], NULL, 10);
	totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	library = dlopen(argv[1], RTLD_NOW);
	if (!library || totals == MAP_FAILED || !rate)
		fail(argv[1]);
	printf("ready\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	began = now_ns();
	end = began + strtoull(argv[3], NULL, 10) * 1000000000u;
	for (uint64_t now = began; now < end; now = now_ns()) {
		reap(MOST_RUNNING);
		if (processes * 1000000000u > (now - began) * rate)
			usleep(2000);
		else
			start_one();
	}
	reap(0);
	printf("%lu %lu %lu %lu\n", processes, totals->containers, totals->stacks, totals->bytes);
	fflush(stdout);
	return 0;
}
