/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_ENTRIES_H
#define GPU_GADGETS_PYTHON_UNWIND_ENTRIES_H

#include "python/runtime/thread.h"
#include "stack/native_rules.h"

/*
 * entries: where C called Python. Each call of CPython's evaluation loop runs several Python
 * frames, from 3.11 on, and puts an object of its own on C's stack: from 3.12 on a frame that the
 * outermost of them is linked to, in 3.10 and 3.11 a _PyCFrame. So the native frame around that
 * address is the one that runs them, whatever its symbol is (stack/runs.h). 3.9 and older leave
 * no such trace.
 *
 * Only with STACK_PYTHON_ENTRIES, for which native_rules must be NATIVE_RULES_ALL: else the
 * verifier removes it.
 */
#define PY_CFRAME_PREVIOUS 16	 /* in 3.11 */
#define PY_CFRAME_PREVIOUS_310 8 /* in 3.10 */
#define PY_THREAD_CFRAME_310 48
#define PY_FRAME_IS_ENTRY 68 /* in 3.11 */

static __always_inline bool python_wants_entries(const struct stack *s)
{
	return native_rules == NATIVE_RULES_ALL && s->flags & STACK_PYTHON_ENTRIES;
}

/* C called the frame before the n-th, and has an object at `entry`. If it called nothing in
 * between, the innermost one counts. */
static __always_inline void python_entered(struct stack *s, __u32 n, __u64 entry)
{
	if (!python_wants_entries(s) || !n || n > STACK_PYTHON_FRAMES)
		return;
	n--;
	barrier_var(n);
	n &= STACK_PYTHON_FRAMES - 1;
	if (s->python[n].flags)
		return;
	s->python[n].flags = entry;
	s->flags |= s->flags & STACK_PYTHON_ENTERED ? STACK_PYTHON_RUNS : STACK_PYTHON_ENTERED;
}

/* Before a walk of frames. */
static __always_inline void python_entries_begin(struct python_thread *t)
{
	if (native_rules != NATIVE_RULES_ALL)
		return;
	t->cframe = 0;
	if (t->offsets.minor == 11)
		t->cframe = PY_THREAD(t, PY_THREAD_FRAME);
	else if (t->offsets.minor == 10)
		t->cframe = python_word(t->thread, 255, PY_THREAD_CFRAME_310);
}

/* The n-th frame is in t->frame, and in s. For 3.10 and 3.11. */
static __noinline int python_entries_add(struct python_thread *t, struct stack *s, __u32 n)
{
	__u64 next =
		t->cframe + (t->offsets.minor == 11 ? PY_CFRAME_PREVIOUS : PY_CFRAME_PREVIOUS_310);

	if (t->offsets.minor == 11 && !t->frame[PY_FRAME_IS_ENTRY])
		return 0;
	python_entered(s, n + 1, t->cframe);
	if (user_copy(&t->fault, &t->cframe, sizeof(t->cframe), next))
		t->cframe = 0;
	return 0;
}

/* After a walk of `count` frames, of which python_outermost() may have proved the last one. */
static __always_inline void python_entries_end(struct python_thread *t, struct stack *s,
					       __u32 count)
{
	if (t->offsets.minor >= 12 && t->last && !t->stack_flags)
		python_entered(s, count, t->last_previous);
	/* Not all frames are there, so the last one may be of no run, or of another. */
	if (t->stack_flags && python_wants_entries(s))
		s->flags |= STACK_PYTHON_RUNS;
}

#endif
