/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_OTHER_H
#define GPU_GADGETS_PYTHON_OTHER_H

#include "python/gil.h"

/*
 * other: the Python stack of a task that is not the current one, for sleepable task
 * iterators. The task is not stopped. It may run meanwhile, so a stack counts only if the
 * innermost frame is still the same after the walk.
 *
 * The unwinder is compiled a second time, under other names, with reads of the other
 * task's memory instead of the current one's, because the kernel rejects a program that
 * may not sleep if any function that it calls could.
 */
#include "python/names.h"
#define USER_OF_OTHER_TASK
#undef GPU_GADGETS_PROCESS_USER_H
#undef GPU_GADGETS_PYTHON_RUNTIME_DISCOVER_H
#undef GPU_GADGETS_PYTHON_RUNTIME_THREAD_H
#undef GPU_GADGETS_PYTHON_UNWIND_LINES_H
#undef GPU_GADGETS_PYTHON_UNWIND_ENTRIES_H
#undef GPU_GADGETS_PYTHON_UNWIND_METHOD_H
#undef GPU_GADGETS_PYTHON_UNWIND_SYMBOLS_H
#undef GPU_GADGETS_PYTHON_UNWIND_MIX_H
#undef GPU_GADGETS_PYTHON_UNWIND_SAME_H
#undef GPU_GADGETS_PYTHON_UNWIND_RECENT_H
#undef GPU_GADGETS_PYTHON_UNWIND_WINDOW_H
#undef GPU_GADGETS_PYTHON_UNWIND_FRAMES_H
#undef GPU_GADGETS_PYTHON_RUNTIME_PROCESS_H
#undef GPU_GADGETS_PYTHON_PYTHON_H
#undef GPU_GADGETS_PYTHON_GIL_H
#include "process/user.h"
#include "python/gil.h"

#define PY_OTHER_TRIES 4

/* Selects the task whose stack the next calls read. The scratch belongs to the reader. */
static __always_inline bool python_look_at(struct task_struct *task)
{
	struct python_thread *t = python_here(BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return false;
	t->task = (__u64)task;
	t->fault.tid = task->pid;
	t->state = 0;
	t->absent_head = 0;
	t->proof.tick = 0;
	return true;
}

/* 1: the thread is still in the frame and at the instruction of the last walk. */
PYTHON_GLOBAL long python_unmoved(void)
{
	struct python_thread *t = python_here(0);
	__u64 frame = 0;

	if (!t || !t->state)
		return 1; /* nothing to walk */
	if (user_read(&t->fault, t->thread, PY_THREAD_BYTES, t->state) ||
	    python_thread_frame(t, &frame) || frame != t->innermost)
		return 0;
	if (!frame)
		return 1;
	if (user_read(&t->fault, t->frame, t->offsets.frame_bytes & 511, frame))
		return 0;
	return PY_FRAME(t, PY_FRAME_INSTR) == t->innermost_at;
}

/* Counts a stack that could not be read, with the reason that its process gives. */
static __always_inline void python_fault_of(const struct stack *s)
{
	drop(s->flags & STACK_HAS_PYTHON ? DROP_PYTHON_FAULT : DROP_PROCESS_UNREADABLE);
}

struct python_other_try {
	struct stack *s;
	__u64 process;
	__u32 moved;
	__s32 err;
};

/* bpf_loop: one attempt; a fault counts as one, because the memory may have been freed. */
static long python_other_step(__u32 i, struct python_other_try *o)
{
	struct user_fault fault;

	long same;

	o->err = python_try(o->s, &fault, o->process, i > 0);
	same = python_unmoved();
	/* The compiler knows the range of a global function's result, but the verifier
	 * does not. */
	barrier_var(same);
	o->moved = same != 1;
	return o->err != -EFAULT && same == 1;
}

/*
 * Fills s->python for the task of python_look_at(), which belongs to `process`. 0;
 * -EFAULT: memory was unreadable; -EAGAIN: it ran during each attempt, so that the frames
 * of s may be inconsistent; s is then flagged as incomplete.
 */
static __always_inline long python_unwind_other(struct stack *s, __u64 process)
{
	struct python_other_try o = { .s = s, .process = process };

	bpf_loop(PY_OTHER_TRIES, python_other_step, &o, 0);
	if (o.err == -EFAULT)
		python_fault_of(s);
	if (!o.moved)
		return o.err;
	s->flags |= STACK_PYTHON_INCOMPLETE;
	return -EAGAIN;
}

static __always_inline long python_gil_of_other(__u64 futex)
{
	return python_gil(futex);
}

#include "python/names.h"
#undef USER_OF_OTHER_TASK

#endif
