// SPDX-License-Identifier: Apache-2.0
// pages: calls the driver from many functions, each in a page of unwind rules (1 KiB of code) of its own.
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <utility>

static int (*allocate)(uint64_t *, uint64_t);

template <int N>
__attribute__((noinline, aligned(1024))) int call()
{
	uint64_t pointer = 0;
	volatile int result = allocate(&pointer, 4096 + N);

	return result;
}

template <int... N>
static int all(std::integer_sequence<int, N...>)
{
	int failed = 0;

	return ((failed |= call<N>()), ...), failed;
}

int main(int, char **args)
{
	void *driver = dlopen(args[1], RTLD_NOW), *context;
	auto init = driver ? (int (*)(int))dlsym(driver, "cuInit") : nullptr;
	auto create = driver ? (int (*)(void **, int, int))dlsym(driver, "cuCtxCreate_v2") : nullptr;

	allocate = driver ? (int (*)(uint64_t *, uint64_t))dlsym(driver, "cuMemAlloc_v2") : nullptr;
	if (!allocate || init(0) || create(&context, 0, 0))
		return 1;
	puts("ready");
	fflush(stdout);
	getchar();
	if (all(std::make_integer_sequence<int, PAGES>()))
		return 1;
	puts("end");
	fflush(stdout);
	getchar();
	return 0;
}
