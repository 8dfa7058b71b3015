/* SPDX-License-Identifier: Apache-2.0 */

/*
 * collectives: calls ncclAllReduce at a given rate, on communicators of one rank, and
 * waits for the stream once per given number of calls. It measures the cost of a tracer.
 *
 *   collectives -l LIBCUDA -n LIBNCCL [-r CALLS/S] [-c COMMUNICATORS] [-w CALLS/WAIT]
 *
 * A rate of 0 is as fast as possible; 0 calls per wait means no waits. It ends by a signal.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct id {
	char bytes[128];
};

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *library(const char *path)
{
	void *lib = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
	if (!lib) {
		fprintf(stderr, "collectives: %s\n", path ? dlerror() : "-l LIBCUDA -n LIBNCCL, please");
		exit(1);
	}
	return lib;
}

static void check(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "collectives: %s: %d\n", what, result);
		exit(1);
	}
}

#define FIND(lib, name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))dlsym(lib, #name)

int main(int argc, char **argv)
{
	const char *cuda_path = NULL, *nccl_path = NULL;
	long rate = 0, communicators = 1, wait = 0;
	int option;
	while ((option = getopt(argc, argv, "l:n:r:c:w:")) != -1)
		switch (option) {
		case 'l': cuda_path = optarg; break;
		case 'n': nccl_path = optarg; break;
		case 'r': rate = atol(optarg); break;
		case 'c': communicators = atol(optarg); break;
		case 'w': wait = atol(optarg); break;
		default: return 2;
		}
	void *cuda = library(cuda_path), *nccl = library(nccl_path);
	FIND(cuda, cuInit, unsigned);
	FIND(cuda, cuDevicePrimaryCtxRetain, void **, int);
	FIND(cuda, cuCtxSetCurrent, void *);
	FIND(cuda, cuStreamCreate, void **, unsigned);
	FIND(cuda, cuStreamSynchronize, void *);
	FIND(nccl, ncclGetUniqueId, struct id *);
	FIND(nccl, ncclCommInitRank, void **, int, struct id, int);
	FIND(nccl, ncclAllReduce, const void *, void *, size_t, int, int, void *, void *);
	void *context, *stream, **comm = calloc((size_t)communicators, sizeof(*comm));
	check(cuInit(0), "cuInit");
	check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	check(cuStreamCreate(&stream, 1), "cuStreamCreate");
	for (long i = 0; i < communicators; i++) {
		struct id id;
		check(ncclGetUniqueId(&id), "ncclGetUniqueId");
		check(ncclCommInitRank(&comm[i], 1, id, 0), "ncclCommInitRank");
	}
	printf("ready\n");
	fflush(stdout);
	uint64_t begun = now();
	for (long n = 1;; n++) {
		check(ncclAllReduce(NULL, NULL, 1024, 7, 0, comm[n % communicators], stream), "ncclAllReduce");
		if (wait && n % wait == 0)
			check(cuStreamSynchronize(stream), "cuStreamSynchronize");
		if (rate && n % 64 == 0) {
			uint64_t due = begun + (uint64_t)n * 1000000000u / (uint64_t)rate, at = now();
			if (due > at)
				nanosleep(&(struct timespec){0, (long)(due - at)}, NULL);
		}
	}
}
