/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without Python whose allocation comes from functions of its own:
 * main, outer, middle, inner. It is built with frame pointers, and on arm64 with
 * signed return addresses. native LIBCUDA prints {"ready": …}, allocates at each line of its
 * input and then prints {"holding": N}: N is 1 if return addresses are stored signed.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*function)();
static function mem_alloc;
static int was_signed;

/* The empty statements keep the compiler from making jumps of the calls. */
#define CALL(call)                     \
	do {                           \
		call;                  \
		__asm__ volatile("");  \
	} while (0)

__attribute__((noinline)) void inner(size_t bytes)
{
	uint64_t pointer;
	uintptr_t *record = __builtin_frame_address(0);

	/* A signature of 7 bits may be 0; not three of them. */
	for (int i = 0; i < 3; i++, record = (uintptr_t *)record[0])
		was_signed |= record[1] >> 48 != 0;
	CALL(mem_alloc(&pointer, bytes));
}

__attribute__((noinline)) void middle(size_t bytes)
{
	CALL(inner(bytes));
}

__attribute__((noinline)) void outer(size_t bytes)
{
	CALL(middle(bytes));
}

/* 0: there is no other line. */
static int wait_for_line(void)
{
	int c;

	fflush(stdout);
	while ((c = getchar()) != '\n' && c != EOF)
		;
	return c == '\n';
}

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	uint64_t context;

	if (!library) {
		fprintf(stderr, "usage: native LIBCUDA: %s\n", dlerror());
		return 1;
	}
	mem_alloc = (function)dlsym(library, "cuMemAlloc_v2");
	((function)dlsym(library, "cuInit"))(0);
	((function)dlsym(library, "cuDevicePrimaryCtxRetain"))(&context, 0);
	((function)dlsym(library, "cuCtxSetCurrent"))(context);
	printf("{\"ready\": %d}\n", getpid());
	while (wait_for_line()) {
		outer(4096);
		printf("{\"holding\": %d}\n", was_signed);
	}
	return 0;
}
