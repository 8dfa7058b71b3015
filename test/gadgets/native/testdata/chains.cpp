// SPDX-License-Identifier: Apache-2.0

// Calls the driver from each of CALLS functions once, while other threads change mappings all the time.
//
// chains LIBCUDA
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

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

// What it changes has pages, so that each takes long.
static void *changing(void *)
{
	size_t bytes = 32 << 20;
	char *memory = (char *)mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < bytes; i += 4096)
		memory[i] = 1;
	for (int on = 0;; on = !on)
		mprotect(memory, bytes, on ? PROT_READ | PROT_WRITE : PROT_READ);
	return 0;
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
