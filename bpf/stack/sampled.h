/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_SAMPLED_H
#define GPU_GADGETS_STACK_SAMPLED_H

#include "stack/unwind.h"

/*
 * sampled: the native frames of a thread wherever it is, by the rules of their files: of one that an
 * interrupt has stopped, and of one that does not run.
 *
 * The first frame is the function that was interrupted, as the address of its begin (or that of
 * its page, which is 1 KiB): else each instruction would make a stack of its own. Where functions have
 * no rules, it is not known where they begin: there it is the address of UNWIND_ALIGNED bytes.
 */

struct unwind_walk {
	struct unwind u;
	struct unwind_more more;
};

/*
 * CPU → the walk of what runs there, while interrupts are off; [0] is that of the reader of an iterator,
 * where one is used instead. The operator makes it larger than 1 if stacks are walked.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_walk);
} unwind_walks SEC(".maps");

/* Global functions, which the verifier follows once. */
__noinline int unwind_step_stopped(struct unwind_walk *w, struct stack *s)
{
	if (!w || !s)
		return 1;
	return unwind_one(&w->u, &w->more, s, bpf_get_current_task_btf(), UNWIND_STOPPED);
}

/* A global function cannot take a task. */
__noinline int unwind_step_other(struct unwind_walk *w, struct stack *s)
{
	struct task_struct *task;
	int last;

	if (!w || !s || !bpf_task_from_pid)
		return 1;
	task = bpf_task_from_pid(w->u.tid);
	if (!task)
		return 1;
	last = unwind_one(&w->u, &w->more, s, task, UNWIND_OTHER);
	bpf_task_release(task);
	return last;
}

/* Where the thread continues in user space. False: nowhere. */
static __always_inline bool unwind_registers(struct unwind *u, struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	if (!regs)
		return false;
#if defined(__TARGET_ARCH_x86)
	u->pc = regs->ip;
	u->sp = regs->sp;
	u->fp = regs->bp;
	u->lr = 0;
#else
	u->pc = regs->pc;
	u->sp = regs->sp;
	u->fp = regs->regs[29];
	u->lr = NATIVE_ADDRESS(regs->regs[30]);
#endif
	return true;
}

/*
 * Fills s->native for the current task, which an interrupt has stopped; `runtime` as of
 * unwind_begin(). From Linux 6.4 on: see stack/mapping.h.
 */
static __noinline int unwind_stopped(struct stack *s, __u64 process, __u64 runtime)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 cpu = bpf_get_smp_processor_id();
	struct unwind_walk *w = bpf_map_lookup_elem(&unwind_walks, &cpu);
	struct unwind *u = &w->u;
	__u32 i;

	if (!s || !w || !unwind_registers(u, task))
		return 0;
	unwind_begin(u, s, task, process, runtime, UNWIND_STOPPED);
	if (!u->kept)
		s->flags |= STACK_NATIVE_BUSY;
	for (i = 0; i < UNWIND_STEPS && u->kept; i++) {
		if (unwind_step_stopped(w, s))
			break;
		runs_seek(u, s);
	}
	if (i == UNWIND_STEPS)
		s->flags |= STACK_NATIVE_TRUNCATED;
	unwind_end(u, s);
	return 0;
}

/* How often a task was switched out: as long as it does not run, that is the same. */
static __always_inline __u64 unwind_switches(struct task_struct *task)
{
	return task->on_cpu ? 0 : 1 + task->nvcsw + task->nivcsw;
}

/* The same for a task that does not run, in a program that may sleep. `switches` is what
 * unwind_switches() was; a task that has run since has no native frames. */
static __noinline int unwind_other(struct stack *s, struct task_struct *task, __u64 process,
				   __u64 runtime, __u64 switches)
{
	__u32 zero = 0, flags = s->flags, i;
	struct unwind_walk *w = bpf_map_lookup_elem(&unwind_walks, &zero);
	struct unwind *u = &w->u;

	if (!s || !w || !switches || !unwind_registers(u, task))
		return 0;
	u->tid = task->pid;
	unwind_begin(u, s, task, process, runtime, UNWIND_OTHER);
	for (i = 0; i < UNWIND_STEPS; i++) {
		if (unwind_step_other(w, s))
			break;
		runs_seek(u, s);
	}
	if (i == UNWIND_STEPS)
		s->flags |= STACK_NATIVE_TRUNCATED;
	if (unwind_switches(task) != switches) {
		s->flags = flags;
		s->native_count = 0;
		return 0;
	}
	unwind_end(u, s);
	return 0;
}

#endif
