// SPDX-License-Identifier: Apache-2.0
/* The probed function: one that a workload calls by ctypes. */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((weak)) extern
API void *PyGILState_GetThisThreadState(void);

__attribute__((noinline)) void mark(unsigned long id)
{
	__asm__ volatile("" : : "r"(id) : "memory");
}

#define SIZES 256

static __thread void *state;
static __thread char links[16]; /* of the state: where malloc() keeps its own once it is free */
static __thread size_t size;	  /* of the state's memory */

/* Called from Python: remembers the thread's state, for the end of the callback. */
void remember_state(void)
{
	state = PyGILState_GetThisThreadState();
	size = malloc_usable_size(state);
	memcpy(links, state, sizeof(links));
}

/* Between two calls the freed thread state of the first is taken by us, so that
 * the second gets another one, and the bytes of the first stay as they were; with
 * remember_state() all of them, as with an allocator that keeps its lists elsewhere. */
static void *call(void *function)
{
	void *taken[SIZES];

	state = 0;
	((void (*)(void))function)();
	for (int i = 0; i < SIZES; i++) {
		taken[i] = malloc(16 * i);
		if (state && taken[i] == state && malloc_usable_size(state) == size)
			memcpy(state, links, sizeof(links));
	}
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

/*
 * Runs Python code in a new interpreter: with a lock of its own (3.12+), or with
 * the one that all share. Called with the lock held. 0: done.
 *
 * The API is declared here because there are no headers for most of the builds
 * under test; it is weak because this library is also loaded without Python.
 */
struct status {
	int type;
	const char *function, *message;
	int exit_code;
};
struct config { /* PyInterpreterConfig of 3.12 – 3.15, Include/cpython/pylifecycle.h */
	int use_main_obmalloc, allow_fork, allow_exec, allow_threads, allow_daemon_threads,
		check_multi_interp_extensions, gil;
};

API void *PyThreadState_Get(void);
API void *PyThreadState_Swap(void *);
API void *Py_NewInterpreter(void);
API struct status Py_NewInterpreterFromConfig(void **, const struct config *);
API void Py_EndInterpreter(void *);
API int PyRun_SimpleString(const char *);

int run_in_interpreter(const char *code, int own_lock, int strict)
{
	void *old = PyThreadState_Get(), *made = 0;
	int failed;

	if (own_lock) {
		/* Not strict: modules that are not made for it, as _ctypes of 3.12. */
		struct config config = { !strict, 1, 1, 1, 1, strict, 2 };
		struct status status = Py_NewInterpreterFromConfig(&made, &config);

		if (status.type)
			return 1;
	} else {
		made = Py_NewInterpreter();
	}
	if (!made)
		return 2;
	failed = PyRun_SimpleString(code);
	Py_EndInterpreter(made);
	PyThreadState_Swap(old);
	return failed ? 3 : 0;
}
