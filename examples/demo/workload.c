/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The workload of `ig-gpu demo` where there is no Python: a server that loads weights,
 * serves requests, and forgets to give the embedding of every fifth request back.
 *
 *   workload LIBCUDA SECONDS
 *
 * The functions are exported, so that their names are known without symbols.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MIB (1ul << 20)
#define EXPORT __attribute__((noinline, visibility("default")))

static int (*mem_alloc)(uint64_t *, size_t);
static int (*mem_free)(uint64_t);

static inline __attribute__((always_inline)) uint64_t take(size_t size)
{
	uint64_t p = 0;
	if (mem_alloc(&p, size)) {
		fprintf(stderr, "workload: the driver refused %zu bytes\n", size);
		exit(1);
	}
	return p;
}

EXPORT void load_weights(void)
{
	for (int layer = 0; layer < 32; layer++)
		(void)take(48 * MIB);
	__asm__ volatile(""); /* no tail call: the frame stays */
}

EXPORT void run_batch(void)
{
	uint64_t activations = take(96 * MIB);
	mem_free(activations);
	__asm__ volatile("");
}

/* The bug: the caller drops the result. */
EXPORT uint64_t embed_image(void)
{
	uint64_t embedding = take(26 * MIB);
	__asm__ volatile("");
	return embedding;
}

EXPORT void serve_request(int number)
{
	run_batch();
	if (number % 5 == 0)
		(void)embed_image();
	__asm__ volatile("");
}

static void *find(void *library, const char *name)
{
	void *f = dlsym(library, name);
	if (!f) {
		fprintf(stderr, "workload: %s\n", dlerror());
		exit(1);
	}
	return f;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: workload LIBCUDA SECONDS\n");
		return 2;
	}
	void *library = dlopen(argv[1], RTLD_NOW);
	if (!library) {
		fprintf(stderr, "workload: %s\n", dlerror());
		return 1;
	}
	int (*init)(unsigned) = (int (*)(unsigned))find(library, "cuInit");
	int (*create)(void **, unsigned, int) =
		(int (*)(void **, unsigned, int))find(library, "cuCtxCreate_v2");
	mem_alloc = (int (*)(uint64_t *, size_t))find(library, "cuMemAlloc_v2");
	mem_free = (int (*)(uint64_t))find(library, "cuMemFree_v2");
	struct timespec second = {1, 0}, pause = {0, 50 * 1000 * 1000};
	nanosleep(&second, NULL); /* as long as a server starts, to attach in */
	void *context;
	if (init(0) || create(&context, 0, 0)) {
		fprintf(stderr, "workload: the driver does not start\n");
		return 1;
	}
	load_weights();
	for (int number = 0; number < atoi(argv[2]) * 20; number++) {
		serve_request(number);
		nanosleep(&pause, NULL);
	}
	return 0;
}
