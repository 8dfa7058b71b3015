// SPDX-License-Identifier: Apache-2.0
/* The probed function: one that a workload calls by ctypes. */
#include <pthread.h>
#include <stdlib.h>

__attribute__((noinline)) void mark(unsigned long id)
{
	__asm__ volatile("" : : "r"(id) : "memory");
}

#define SIZES 256

/* Between two calls the freed thread state of the first is taken by us, so that
 * the second gets another one, and the bytes of the first stay as they were. */
static void *call(void *function)
{
	void *taken[SIZES];

	((void (*)(void))function)();
	for (int i = 0; i < SIZES; i++)
		taken[i] = malloc(16 * i);
	((void (*)(void))function)();
	for (int i = 0; i < SIZES; i++)
		free(taken[i]);
	return 0;
}

/* Calls `function` twice in a thread that Python did not make. */
void call_in_thread(void (*function)(void))
{
	pthread_t thread;

	if (!pthread_create(&thread, 0, call, function))
		pthread_join(thread, 0);
}

static void *call_mark(void *id)
{
	mark((unsigned long)id);
	return 0;
}

/* Calls mark() in a thread that Python does not know. */
void mark_in_thread(unsigned long id)
{
	pthread_t thread;

	if (!pthread_create(&thread, 0, call_mark, (void *)id))
		pthread_join(thread, 0);
}
