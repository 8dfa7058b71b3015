// SPDX-License-Identifier: Apache-2.0
/* The probed function: one that a workload calls by ctypes. */
#include <pthread.h>

__attribute__((noinline)) void mark(unsigned long id)
{
	__asm__ volatile("" : : "r"(id) : "memory");
}

static void *call(void *function)
{
	((void (*)(void))function)();
	return 0;
}

/* Calls `function` in a thread that Python did not make. */
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
