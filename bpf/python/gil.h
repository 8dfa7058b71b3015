/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_GIL_H
#define GPU_GADGETS_PYTHON_GIL_H

#include "python/python.h"

/*
 * gil: whether the thread of the last walk holds the interpreter's lock or sleeps until
 * it gets it.
 *
 *   3.7 – 3.11  _PyRuntime.gilstate.tstate_current is the holder's state
 *   3.12        PyInterpreterState.ceval.gil → _gil_runtime_state
 *   3.13        the same, at offsets from _Py_DebugOffsets
 *
 * Offsets in bytes, from the debug information of 3.7.16 – 3.12.1. 3.14 and later are
 * refused: their _Py_DebugOffsets was never tested.
 */
#define PY_GIL_MINOR_LAST 13
#define PY_GIL_3_12 384
#define PY_GIL_LAST_HOLDER 8
#define PY_GIL_LOCKED 16
/*
 * The rest of _gil_runtime_state: two condition variables and two mutexes of pthreads.
 * Waiting threads pass their addresses to the kernel (futex; glibc). Up to 3.11 it
 * precedes gilstate in _PyRuntime, whereas other locks are allocated.
 */
#define PY_GIL_FUTEX 32
#define PY_GIL_FUTEX_BYTES 176
/* In _Py_DebugOffsets of 3.13: interpreter_state.ceval_gil. */
#define PY_DEBUG_CEVAL_GIL 112

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
enum python_gil {
	PY_GIL_UNKNOWN = 0, /* not known for this version, or a read failed */
	PY_GIL_HELD = 1,
	PY_GIL_NOT_HELD = 2,
	PY_GIL_WAITED = 3, /* not held, and the thread sleeps until it gets it */
};

static const __u16 python_gil_current[8] = { 1480, 1368, 568, 568, 576 };

/* Two pthread mutexes of 40 bytes each precede it; those of glibc have 48 bytes on arm64,
 * according to its headers and those of 3.7 – 3.11. All else is as on x86-64. */
#if defined(__TARGET_ARCH_arm64)
#define PY_GIL_CURRENT_LATER 16
#else
#define PY_GIL_CURRENT_LATER 0
#endif

#endif

/*
 * enum python_gil, for the thread state in python_here(). `futex` is the address of the
 * futex that the thread waits for, 0: none.
 */
PYTHON_GLOBAL long python_gil(__u64 futex)
{
	struct python_thread *t = python_here(0);
	__u64 interpreter, gil, at = PY_GIL_3_12, holder = 0;
	__u32 locked = 0;

	if (!t || !t->state || t->offsets.minor > PY_GIL_MINOR_LAST || t->offsets.free_threaded)
		return PY_GIL_UNKNOWN;
	if (t->offsets.minor < 12) {
		at = python_gil_current[(t->offsets.minor - PY_MINOR_FIRST) & 7] +
		     PY_GIL_CURRENT_LATER;
		if (user_read(&t->fault, &holder, sizeof(holder), t->runtime + at))
			return PY_GIL_UNKNOWN;
		if (holder == t->state)
			return PY_GIL_HELD;
		return futex - t->runtime < at ? PY_GIL_WAITED : PY_GIL_NOT_HELD;
	}
	if (t->offsets.minor == 13 &&
	    user_read(&t->fault, &at, sizeof(at), t->runtime + PY_DEBUG_CEVAL_GIL))
		return PY_GIL_UNKNOWN;
	/* `interp` follows `next` in every version. */
	if (user_read(&t->fault, &interpreter, sizeof(interpreter),
		      t->state + t->offsets.at[PY_THREAD_NEXT] + 8) ||
	    user_read(&t->fault, &gil, sizeof(gil), interpreter + (at & 0xffff)) ||
	    user_read(&t->fault, &holder, sizeof(holder), gil + PY_GIL_LAST_HOLDER) ||
	    user_read(&t->fault, &locked, sizeof(locked), gil + PY_GIL_LOCKED))
		return PY_GIL_UNKNOWN;
	if (locked && holder == t->state)
		return PY_GIL_HELD;
	return futex - gil - PY_GIL_FUTEX < PY_GIL_FUTEX_BYTES ? PY_GIL_WAITED : PY_GIL_NOT_HELD;
}

#endif
