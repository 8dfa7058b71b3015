/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_BACKWARD_PASS_H
#define GPU_GADGETS_CALL_BACKWARD_PASS_H

#include "call/thread.h"

/*
 * backward_pass: the pass that the current thread works on, and the stack that began
 * it, behind the thread's own.
 */
#ifndef LINUX_5_10

#include "process/tls.h"

#define BACKWARD_WORDS 8 /* that a search reads at once; a power of two */
/*
 * Searches that may be in vain, for each pass that the process has begun. Most threads work on
 * none and have each some of their own: those of a thread of autograd's, which succeed, must not
 * be used up before its first call. One takes 20 µs.
 */
#define BACKWARD_SEARCHES_OF_THREAD 8
#define BACKWARD_SEARCHES_OF_PROCESS 64
/* And these, once. */
#define BACKWARD_SEARCHES 1024
/* Passes that one thread has begun, each inside of the one before: reentrant checkpoints. */
#define BACKWARD_NESTED 8

static __always_inline struct backward_pass *backward_find(__u64 process, __u64 task)
{
	struct backward_key key = { .process = process, .task = task };

	return task ? bpf_map_lookup_elem(&backward_passes, &key) : 0;
}

struct backward_search {
	__u64 process;
	__u64 block;
	__u64 found; /* as backward_process.variable */
	__u64 words[BACKWARD_WORDS + 1];
};

/* bpf_loop: a word of the block, with the one behind it. */
static long backward_search_step(__u32 i, struct backward_search *s)
{
	__u32 n = i & (BACKWARD_WORDS - 1);
	__u64 at = (__u64)i * 8, task;
	struct backward_pass *pass;

	if (!n && bpf_probe_read_user(s->words, sizeof(s->words), (void *)(s->block + at)))
		return 1;
	task = s->words[n];
	if (!task || task & 7 || !s->words[n + 1])
		return 0;
	pass = backward_find(s->process, task);
	if (!pass || pass->control != s->words[n + 1])
		return 0;
	s->found = at + 1;
	return 1;
}

/* Finds the variable in the block of the current thread, if the thread works on a pass. */
static __noinline int backward_search(struct thread *t, struct backward_process *p, __u64 block)
{
	struct backward_search s = { .block = block };

	if (!t || !p)
		return 0;
	if (t->backward.searches >= p->passes * BACKWARD_SEARCHES_OF_THREAD ||
	    p->searches >= BACKWARD_SEARCHES + p->passes * BACKWARD_SEARCHES_OF_PROCESS) {
		if (!t->stack.python_count)
			drop(DROP_BACKWARD_UNKNOWN);
		return 0;
	}
	s.process = t->process;
	bpf_loop(p->block.bytes / 8 + 1, backward_search_step, &s, 0);
	if (s.found) {
		p->variable = s.found;
		return 0;
	}
	t->backward.searches++;
	__sync_fetch_and_add(&p->searches, 1);
	return 0;
}

/* The GraphTask that the current thread works on; 0: none, or it is not known. */
static __always_inline __u64 backward_current(struct thread *t)
{
	struct backward_process *p;
	__u64 process, block, task = 0;

	if (!t->backward.variable) {
		/* Before Linux 6.4 a key may not be in what a global function was given. */
		process = t->process;
		p = bpf_map_lookup_elem(&backward_by_process, &process);
		if (!p)
			return 0; /* no pass has begun */
		if (tls_address(&block, p->block.access, p->block.at, 0,
				TLS_TP(bpf_get_current_task_btf()), false) ||
		    !block)
			return 0; /* the thread has not used any of its variables */
		block -= p->block.offset;
		if (!p->variable)
			backward_search(t, p, block);
		if (!p->variable)
			return 0;
		t->backward.variable = block + p->variable - 1;
	}
	if (bpf_probe_read_user(&task, sizeof(task), (void *)t->backward.variable)) {
		drop(DROP_BACKWARD_UNKNOWN);
		return 0;
	}
	return task;
}

static __always_inline __u64 backward_place(const struct python_frame *f)
{
	return f->symbol + f->line;
}

/*
 * Whether the current thread is still inside of the call that began the pass, by what cannot
 * change meanwhile: the pointer that was passed, and the frames that called.
 */
static __always_inline bool backward_in(struct thread *t, __u64 task, const struct backward_pass *p)
{
	__u32 from = t->stack.python_count - p->own;
	__u64 words[2];

	if (p->tid != (__u32)bpf_get_current_pid_tgid() || p->own > t->stack.python_count ||
	    bpf_probe_read_user(words, sizeof(words), (void *)p->argument) || words[0] != task ||
	    words[1] != p->control)
		return false;
	if (!p->own)
		return true;
	asm volatile("%0 &= %1" : "+r"(from) : "i"(STACK_PYTHON_FRAMES - 1));
	return backward_place(&t->stack.python[from]) == p->place;
}

/*
 * The innermost pass that the current thread began and is still inside of, whose argument
 * is above `above` on its stack. NULL: none. t->backward.begun becomes that.
 */
static __always_inline struct backward_pass *backward_innermost(struct thread *t, __u64 above)
{
	struct backward_pass *p;

	for (int i = 0; i < BACKWARD_NESTED; i++) {
		p = backward_find(t->process, t->backward.begun);
		if (!p)
			break;
		if (p->argument > above && backward_in(t, t->backward.begun, p))
			return p;
		t->backward.begun = p->outer;
	}
	t->backward.begun = 0;
	return 0;
}

/* Appends the Python frames of `from`; `asked`: by another thread. */
static __always_inline void backward_append(struct stack *s, const struct stack *from, bool asked)
{
	__u32 to = s->python_count;

	for (__u32 i = 0; i < STACK_PYTHON_FRAMES; i++) {
		__u32 target = to + i;

		if (i >= from->python_count)
			break;
		if (target >= STACK_PYTHON_FRAMES) {
			s->flags |= STACK_PYTHON_TRUNCATED;
			break;
		}
		asm volatile("%0 &= %1" : "+r"(target) : "i"(STACK_PYTHON_FRAMES - 1));
		s->python[target] = from->python[i];
		if (!i && asked)
			s->python[target].flags |= PYTHON_FRAME_ASKED;
		s->python_count = target + 1;
	}
	s->flags |= from->flags & (STACK_PYTHON_TRUNCATED | STACK_PYTHON_INCOMPLETE);
}

/* Before the two below: records the pass that the thread works on. */
__noinline int backward_look(struct thread *t)
{
	if (t)
		t->backward.current = backward_current(t);
	return 0;
}

/* Whether another thread's stack will be joined to that of this one. */
__noinline int backward_is_asked(struct thread *t)
{
	struct backward_pass *pass;

	if (!t || !t->backward.current)
		return 0;
	pass = backward_find(t->process, t->backward.current);
	return pass && pass->stack && pass->tid != (__u32)bpf_get_current_pid_tgid();
}

/*
 * Joins the stack that began the pass that the thread works on, if it does, to
 * t->stack, which has been unwound. A global function: it is verified once, not wherever a
 * stack is taken.
 */
__noinline int backward_join(struct thread *t)
{
	struct backward_pass *pass, *inner = 0;
	struct stack *from;
	__u64 task;

	if (!t)
		return 0;
	t->backward.own = t->stack.python_count;
	t->backward.place = backward_place(&t->stack.python[0]);
	if (t->backward.argument) /* a pass begins */
		backward_innermost(t, t->backward.argument);
	task = t->backward.current;
	if (!task)
		return 0;
	pass = backward_find(t->process, task);
	if (!pass) {
		drop(DROP_BACKWARD_UNKNOWN); /* it began before attach, or there was no room */
		return 0;
	}
	if (!pass->stack)
		return 0;
	from = bpf_map_lookup_elem(&stacks_by_id, &pass->stack);
	if (!from) {
		drop(DROP_BACKWARD_UNKNOWN);
		return 0;
	}
	/*
	 * Frames that wait for a pass: of this one, they are in `from`, too. Of another one, they
	 * have nothing to do with this work, which the thread does while it waits.
	 */
	if (t->stack.python_count && t->backward.begun)
		inner = t->backward.begun == task && pass->tid == (__u32)bpf_get_current_pid_tgid()
				? pass
				: backward_innermost(t, 0);
	if (inner && inner->own && inner->own <= t->stack.python_count) {
		t->stack.python_count -= inner->own;
		t->stack.flags &= ~(STACK_PYTHON_TRUNCATED | STACK_PYTHON_INCOMPLETE);
	}
	backward_append(&t->stack, from, inner != pass);
	return 0;
}

#endif

#endif
