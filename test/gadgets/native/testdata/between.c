/* SPDX-License-Identifier: Apache-2.0 */
/*
 * between: functions of C between two parts of Python, each of which calls back, and the one that
 * allocates below the innermost part.
 */
#include <dlfcn.h>
#include <stdint.h>

static int (*allocate)(uint64_t *, uint64_t);
static int (*select_context)(void *);
static void *context;

int between_open(const char *driver)
{
	void *library = dlopen(driver, RTLD_NOW);
	int (*init)(int) = library ? (int (*)(int))dlsym(library, "cuInit") : 0;
	int (*create)(void **, int, int) =
		library ? (int (*)(void **, int, int))dlsym(library, "cuCtxCreate_v2") : 0;

	select_context = library ? (int (*)(void *))dlsym(library, "cuCtxSetCurrent") : 0;
	allocate = library ? (int (*)(uint64_t *, uint64_t))dlsym(library, "cuMemAlloc_v2") : 0;
	return !allocate || !select_context || init(0) || create(&context, 0, 0);
}

/* Once for each thread. */
int between_thread(void)
{
	return select_context(context);
}

/* Not tail calls: each has a frame. */
#define CROSSING(name) \
	int name(int (*call)(int), int depth) \
	{ \
		volatile char room[sizeof(#name) * 8]; \
		room[0] = depth; \
		int result = call(depth); \
		return result + room[0] - depth; \
	}

CROSSING(crossing_a)
CROSSING(crossing_bb)
CROSSING(crossing_ccc)

int leaf(void)
{
	uint64_t pointer = 0;
	volatile int result = allocate(&pointer, 4096);

	return result;
}
