// SPDX-License-Identifier: Apache-2.0

// Calls the driver below a number of functions, each another one. As a program: a line is
// DEPTH CALLS CHANGES, with a change of the mappings before each call or without; it answers when
// they are done. As a library: run().
//
// depths LIBCUDA
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#define NOINLINE __attribute__((noinline))

static int (*cu_alloc)(uint64_t *, size_t);
static volatile uint64_t sink;

static NOINLINE void leaf(int calls, int changes)
{
	uint64_t pointer;

	for (int i = 0; i < calls; i++) {
		if (changes)
			munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
		if (cu_alloc(&pointer, 4096))
			abort();
		sink += pointer;
	}
}

template <int N> static NOINLINE void level(int depth, int calls, int changes)
{
	if (depth == 0)
		leaf(calls, changes);
	else if constexpr (N > 0)
		level<N - 1>(depth - 1, calls, changes);
	sink += N;
}

extern "C" int run(const char *driver, int depth, int calls)
{
	static void *context;
	void *cuda = dlopen(driver, RTLD_NOW);

	if (!context) {
		int (*cu_init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
		int (*cu_context)(void **, unsigned, int) =
			(int (*)(void **, unsigned, int))dlsym(cuda, "cuCtxCreate_v2");

		cu_alloc = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
		if (cu_init(0) || cu_context(&context, 0, 0))
			return 1;
	}
	level<50>(depth, calls, 0);
	return 0;
}

int main(int argc, char **argv)
{
	int depth, calls, changes;

	if (argc != 2 || run(argv[1], 0, 0))
		return 1;
	puts("ready");
	fflush(stdout);
	while (scanf("%d %d %d", &depth, &calls, &changes) == 3) {
		level<50>(depth, calls, changes);
		puts("done");
		fflush(stdout);
	}
}
