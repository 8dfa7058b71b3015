/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_RUNS_H
#define GPU_GADGETS_STACK_RUNS_H

#include "stack/caller.h"

/*
 * runs: the order of native and Python frames, where Python calls C that calls Python again.
 *
 * Frames of python that one call of the interpreter's evaluation loop runs are a run. Its end has
 * the address of an object on C's stack (python/unwind/entries.h), and the walk of native frames
 * passes the run at the frame around that address. The stack gets a word of STACK_NATIVE_RUN
 * there, and none of the interpreter's own frames. The outermost run has no word: the walk ends
 * with it. So it does at the first frame of the interpreter where there is one run only. But where
 * the thread works for a Python stack of another one, which is to follow (call/backward.h), the walk
 * continues to the thread's start.
 *
 * An address that is in no frame shows that the two do not belong together. Then the native
 * frames end at the interpreter's first, as if there were one run.
 */

/* Steps of a walk, most of which are in the interpreter: one call of Python by C takes some. */
#define UNWIND_STEPS 320

/* Goes to the next run of s, if there is one; u->run is how many Python frames come before its
 * end. */
__noinline int runs_next(struct unwind *u, struct stack *s)
{
	__u32 i;

	if (!u || !s)
		return 0;
	for (i = 0; i < STACK_PYTHON_FRAMES; i++) {
		if (i >= s->python_count)
			break;
		if (i >= u->run && s->python[i].flags) {
			u->entry = s->python[i].flags;
			u->run = i + 1;
			break;
		}
	}
	return 0;
}

/* How many Python frames there are up to the end of the outermost run. */
__noinline int runs_last(struct stack *s)
{
	__u32 i;
	int last = 0;

	if (!s)
		return 0;
	for (i = 0; i < STACK_PYTHON_FRAMES; i++) {
		if (i >= s->python_count)
			break;
		if (s->python[i].flags)
			last = i + 1;
	}
	return last;
}

/* Before a walk for s. u->last becomes 0 if it ends at the interpreter. */
__noinline int runs_begin(struct unwind *u, struct stack *s)
{
	if (!u || !s)
		return 0;
	u->last = 0;
	if (native_rules != NATIVE_RULES_ALL || !u->runtime || !(s->flags & STACK_PYTHON_ENTRIES))
		return 0;
	if (!(s->flags & (STACK_PYTHON_RUNS | STACK_NATIVE_TO_END)))
		return 0;
	u->run = u->counted = u->before = 0;
	u->passed_last = u->seek = 0;
	u->last = runs_last(s);
	runs_next(u, s);
	if (u->run == u->last && !(s->flags & STACK_NATIVE_TO_END))
		u->last = 0;
	return 0;
}

/* The thread was interrupted in the interpreter: a word of no frames, so that the next native frame
 * is not the one that was interrupted. */
static __always_inline void runs_begin_inside(struct stack *s)
{
	if (s->native_count)
		return;
	s->native[0] = STACK_NATIVE_RUN;
	s->native_count = 1;
}

/* Adds the word of the run that has been passed. Not 0: there is no room. */
static __always_inline int runs_add(struct unwind *u, struct stack *s)
{
	__u32 n = s->native_count;
	__u64 frames = u->run - u->counted;
	__u64 *before;

	u->counted = u->run;
	if (n && n <= STACK_NATIVE_FRAMES) {
		before = &s->native[(n - 1) & (STACK_NATIVE_FRAMES - 1)];
		if (*before & STACK_NATIVE_RUN) {
			*before += frames;
			return 0;
		}
	}
	if (n >= STACK_NATIVE_FRAMES) {
		s->flags |= STACK_NATIVE_TRUNCATED;
		return 1;
	}
	s->native[n & (STACK_NATIVE_FRAMES - 1)] = STACK_NATIVE_RUN | frames;
	s->native_count = n + 1;
	return 0;
}

/* The walk has stepped from a frame that begins at `sp`. Not 0: it ends. */
static __always_inline int runs_step(struct unwind *u, struct stack *s, __u64 sp)
{
	__u64 bytes = u->sp - sp;

	if (u->passed_last)
		return 0;
	if (bytes > NATIVE_STACK_BYTES) /* to another stack */
		return 1;
	if ((__u32)(u->entry - (__u32)sp) < bytes) {
		u->passed_last = u->run == u->last;
		if (u->passed_last && !(s->flags & STACK_NATIVE_TO_END))
			return 1;
		if (runs_add(u, s))
			return 1;
		u->seek = !u->passed_last;
		return 0;
	}
	/* It lies in a frame that was passed, or on another stack. */
	return (__s32)(u->entry - (__u32)u->sp) < 0;
}

/* Between two steps: what unwind_step() would call itself, if its stack had room for that. */
static __always_inline void runs_seek(struct unwind *u, struct stack *s)
{
	if (!u->seek)
		return;
	u->seek = 0;
	runs_next(u, s);
}

/* After a walk. */
__noinline int runs_end(struct unwind *u, struct stack *s)
{
	__u32 n;

	if (!u || !s || !u->last)
		return 0;
	n = s->native_count;
	if (u->passed_last) {
		/* What called the last run with a word are frames of the interpreter only. */
		if (n && s->native[(n - 1) & (STACK_NATIVE_FRAMES - 1)] & STACK_NATIVE_RUN)
			s->native_count = n - 1;
		return 0;
	}
	if (s->flags & STACK_NATIVE_CUT && u->counted)
		return 0; /* in order as far as they go */
	if (u->before) {
		s->native_count = u->before - 1;
		s->flags &= ~STACK_NATIVE_CUT;
	}
	return 0;
}

/* For a stack that is taken: its Python frames have flags again. */
__noinline int runs_forget(struct stack *s)
{
	__u32 flags, i;

	if (!s)
		return 0;
	flags = s->flags;
	s->flags = flags & ~(STACK_PYTHON_ENTRIES | STACK_NATIVE_TO_END | STACK_PYTHON_ENTERED |
			     STACK_PYTHON_RUNS);
	if (!(flags & STACK_PYTHON_RUNS)) {
		i = s->python_count - 1U;
		if (i < STACK_PYTHON_FRAMES)
			s->python[i].flags = 0;
		return 0;
	}
	for (i = 0; i < STACK_PYTHON_FRAMES; i++) {
		if (i >= s->python_count)
			break;
		s->python[i].flags = 0;
	}
	return 0;
}

#endif
