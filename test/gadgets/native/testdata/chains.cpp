// SPDX-License-Identifier: Apache-2.0

// Calls the driver from each of CALLS functions once, while another thread changes mappings all the time.
//
// chains LIBCUDA
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "changing.h"

#define CALLS 2000
#define NOINLINE __attribute__((noinline))

static int (*cu_alloc)(uint64_t *, size_t);
static volatile uint64_t sink;

static NOINLINE void leaf()
{
	uint64_t pointer;

	if (cu_alloc(&pointer, 4096))
		abort();
	sink += pointer;
}

template <int N> static NOINLINE void call()
{
	leaf();
	sink += N;
}

template <int... N> static NOINLINE void call_all(std::integer_sequence<int, N...>)
{
	static void (*const all[])() = { call<N>... };

	for (auto one : all) {
		one();
		usleep(100);
	}
}

int main(int, char **argv)
{
	void *cuda = dlopen(argv[1], RTLD_NOW), *context;
	int (*cu_init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
	int (*cu_context)(void **, unsigned, int) = (int (*)(void **, unsigned, int))dlsym(cuda, "cuCtxCreate_v2");
	pthread_t other;

	cu_alloc = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
	if (cu_init(0) || cu_context(&context, 0, 0))
		return 1;
	puts("ready");
	fflush(stdout);
	getchar();
	leaf(); // main's own caller is known from here on
	pthread_create(&other, 0, changing, 0);
	call_all(std::make_integer_sequence<int, CALLS>());
	puts("end");
	fflush(stdout);
	getchar();
}
