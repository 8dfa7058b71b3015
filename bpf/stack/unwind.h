/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_UNWIND_H
#define GPU_GADGETS_STACK_UNWIND_H

#include "stack/modules.h"
#include "stack/runs.h"

/*
 * unwind: the native frames of a thread by the rules of the files that their code is in. Of the
 * callers of a probed function: stack/probed.h. Of a thread wherever it is: stack/sampled.h.
 *
 * A rule that is kept for an address counts as long as its file is mapped there: stack/modules.h.
 *
 * Where Python frames follow, the walk ends with the first frame of the interpreter: what called
 * that is in the Python frames, or is the interpreter's own. With NATIVE_RULES_ALL it continues as
 * long as there may be native frames between Python frames: stack/runs.h.
 *
 * A step that fails cuts the stack there, with a flag that says why, and is counted by that.
 */

/*
 * Where a call that is probed returns to, if its return address was replaced by the kernel's own
 * for a return probe, which is the start of a page (xol_area in kernel/events/uprobes.c: the first
 * slot); else 0. A process has a return instance for each call that it is in.
 */
static __always_inline __u64 unwind_replaced(struct task_struct *task, __u64 slot)
{
	struct uprobe_task *utask = task->utask;
	struct return_instance *r;

	if (!utask)
		return 0;
	r = utask->return_instances;
	for (__u32 i = 0; i < 32 && r; i++) {
		if (r->stack == slot)
			return r->orig_ret_vaddr;
		r = r->next;
	}
	return 0;
}

/* Whether the kernel returns here from a signal's handler: code that no file need have. */
static __always_inline bool unwind_is_sigreturn(__u64 pc, struct task_struct *task,
						enum unwind_of of)
{
	__u64 code[2] = {};

	if (unwind_read(code, sizeof(code), pc, task, of))
		return false;
#if defined(__TARGET_ARCH_x86)
	/* mov $15, %rax; syscall */
	return code[0] == 0x0f0000000fc0c748ULL && (code[1] & 0xff) == 0x05;
#else
	return code[0] == 0xd4000001d2801168ULL; /* mov x8, #139; svc #0 */
#endif
}

/* Entries of one second are not those of another day: then the pages count as used. */
static __always_inline __u64 unwind_tag(const struct unwind *u, __u64 at)
{
	return at ^ u->tag_clock << 48;
}

/* The two entries in which that of an address may be, the newer one first. */
static __always_inline struct unwind_known *unwind_slots(struct unwind *u, struct unwind_more *m,
							 __u64 at)
{
	const __u64 pairs = UNWIND_KNOWN / 2, more = UNWIND_KNOWN_MORE / 2;
	__u64 hash = at * 0x9e3779b97f4a7c15ULL >> 32;
	__u64 pair = hash * (pairs + more) >> 32;

	barrier_var(pair); /* else multiplied and shifted in one, whose bound the verifier misses */
	if (pair < pairs) {
		barrier_var(pair); /* else multiplied before it is compared */
		return &u->known[pair * 2];
	}
	pair -= pairs;
	barrier_var(pair);
	return &m->known[pair * 2];
}

static __always_inline bool unwind_recall(struct unwind *u, const struct unwind_known *known,
					  __u64 tag)
{
	if (known->tag != tag || known->mappings != (__u16)u->mappings)
		return false;
	u->rule = known->rule;
	return true;
}

/* The entry of an address, or else the newer one, which is then to become the older one. */
static __always_inline struct unwind_known *unwind_kept(struct unwind *u, struct unwind_more *m,
							__u64 at)
{
	struct unwind_known *slots;
	__u64 tag;

	barrier_var(at); /* nothing of before is kept for this, which would take stack */
	slots = unwind_slots(u, m, at);
	tag = unwind_tag(u, at);
	return slots[0].tag != tag && slots[1].tag == tag ? &slots[1] : &slots[0];
}

/* Keeps u->rule of an address in a mapping. */
static __always_inline void unwind_keep(struct unwind *u, struct unwind_more *m, __u64 at,
					__u32 module)
{
	struct unwind_known *known = unwind_kept(u, m, at);
	__u64 tag = unwind_tag(u, at);

	if (known->tag != tag)
		unwind_slots(u, m, at)[1] = *known;
	known->tag = tag;
	known->mappings = u->mappings;
	known->module = module;
	known->rule = u->rule;
}

/* Finds u->rule of an address in the process's mappings. As unwind_resolve(). */
static __always_inline __u32 unwind_look_up(struct unwind *u, struct unwind_more *m,
					    struct task_struct *task, __u64 at, bool leaf,
					    enum unwind_of of)
{
	struct unwind_module place = {};
	struct unwind_known *known;
	long err;

	err = unwind_find_module(u, task, at, &place, of);
	known = unwind_kept(u, m, at);
	if (!leaf && place.number && known->tag == unwind_tag(u, at) &&
	    known->module == (__u16)place.number) {
		known->mappings = u->mappings;
		u->rule = known->rule;
		return 0;
	}
	u->rule.kind = UNWIND_NONE;
	if (err == -EBUSY)
		return STACK_NATIVE_BUSY;
	if (err || !place.executable) {
		u->is_code = false;
		return STACK_NATIVE_BROKEN;
	}
	if (!place.is_file) {
		u->rule.kind = UNWIND_FRAME;
	} else if (!unwind_find(&place.key, at - place.start + place.offset, &u->rule,
				of == UNWIND_CALLER ? 0 : &u->into)) {
		unwind_ask(&place.key, place.start, at, u->sp, task);
		u->rule.kind = UNWIND_NOT_LOADED;
	}
	if (u->rule.kind == UNWIND_FRAME || u->rule.kind == UNWIND_NONE) {
		if (leaf && place.is_file) /* where its function begins is not known */
			u->into = at & (UNWIND_ALIGNED - 1);
		if (unwind_is_sigreturn(u->pc, task, of))
			u->rule.kind = UNWIND_SIGNAL;
		else if (u->exact) /* interrupted anywhere: the frame pointer says nothing */
			u->rule.kind = UNWIND_NONE;
	}
	if (place.python)
		u->rule.kind |= UNWIND_PYTHON;
	if (u->kept && !leaf && (u->rule.kind & ~UNWIND_PYTHON) != UNWIND_NOT_LOADED)
		unwind_keep(u, m, at, place.number);
	return 0;
}

/* Finds u->rule, and whether u->pc is code. Flags why not. */
static __always_inline __u32 unwind_resolve(struct unwind *u, struct unwind_more *m,
					    struct task_struct *task, enum unwind_of of)
{
	struct unwind_known *slots;
	__u64 at, tag, replaced;
	/* An address of many, which is wanted as that of its function. */
	bool leaf = of != UNWIND_CALLER && u->leaf;

	if (!u->exact && !(u->pc & 4095)) {
		replaced = unwind_replaced(task, u->slot);
		if (replaced)
			u->pc = replaced;
	}
	at = u->exact ? u->pc : u->pc - 1;
	slots = unwind_slots(u, m, at);
	tag = unwind_tag(u, at);
	u->is_code = true;
	if (!leaf && u->kept &&
	    (unwind_recall(u, &slots[0], tag) || unwind_recall(u, &slots[1], tag)))
		return 0;
	return unwind_look_up(u, m, task, at, leaf, of);
}

/*
 * One frame: adds u->pc to the stack and steps to its caller. Not 0: that was the last one, or
 * was none.
 */
static __always_inline int unwind_one(struct unwind *u, struct unwind_more *m, struct stack *s,
				      struct task_struct *task, enum unwind_of of)
{
	__u32 flags, n;
	bool python, skipped;
	__u64 sp;

	if (u->pc < 4096 || u->pc >> 63) {
		if (u->pc) /* 0 ends a stack, too: of what has no rule for that */
			s->flags |= STACK_NATIVE_BROKEN;
		return 1;
	}
	u->into = 0;
	flags = unwind_resolve(u, m, task, of);
	python = !flags && u->rule.kind & UNWIND_PYTHON && u->runtime;
	skipped = python && u->last;
	/* Where a program that has Python is interrupted, that is mostly the interpreter. */
	if (of != UNWIND_CALLER && python && !skipped)
		return 1;
	n = s->native_count;
	if (skipped && !u->before) {
		u->before = n + 1;
		if (u->leaf)
			runs_begin_inside(s);
	}
	if (u->is_code && !u->caller && !skipped) {
		if (n >= STACK_NATIVE_FRAMES) {
			s->flags |= STACK_NATIVE_TRUNCATED;
			return 1;
		}
		s->native[n & (STACK_NATIVE_FRAMES - 1)] = u->leaf ? u->pc - u->into : u->pc;
		s->native_count = n + 1;
	}
	u->caller = false;
	u->leaf = false;
	if (!flags) {
		if (python && !skipped)
			return 1;
		sp = u->sp;
		u->rule.kind &= ~UNWIND_PYTHON;
		if (u->rule.kind == UNWIND_STOP)
			return 1;
		if (u->rule.kind == UNWIND_NONE)
			flags = STACK_NATIVE_NO_RULES;
		else if (u->rule.kind == UNWIND_NOT_LOADED)
			flags = STACK_NATIVE_NOT_LOADED;
		else if (u->rule.kind == UNWIND_SIGNAL)
			flags = unwind_signal(u, task, of);
		else if (u->rule.kind == UNWIND_FRAME)
			flags = unwind_frame(u, task, of);
		else
			flags = unwind_apply(u, task, of);
		if (!flags && u->last && runs_step(u, s, sp))
			return 1;
	}
	s->flags |= flags;
	return flags != 0;
}

/* Finds the file of the interpreter: its data, or what follows it in memory, is at u->runtime. */
static __always_inline void unwind_interpreter(struct unwind *u, struct task_struct *task,
					       enum unwind_of of)
{
	struct unwind_module place = {};

	if (!u->runtime || u->runtime == u->python_runtime)
		return;
	if (unwind_mapping(u, task, u->runtime, &place, of))
		return;
	if (!place.is_file && unwind_mapping(u, task, place.start - 1, &place, of))
		return;
	u->python_runtime = u->runtime;
	u->python_inode = place.is_file ? place.key.inode : 0;
	u->python_device = place.key.device;
	u->mappings++; /* modules that are kept do not have it */
}

/* The reason of a stack that is cut; DROP_NONE: it is complete. As cut() of internal/stack. */
static __always_inline enum drop_reason unwind_cut(__u32 flags)
{
	if (flags & STACK_NATIVE_NO_RULES)
		return DROP_NATIVE_NO_RULES;
	if (flags & STACK_NATIVE_NOT_LOADED)
		return DROP_NATIVE_NOT_LOADED;
	if (flags & STACK_NATIVE_BROKEN)
		return DROP_NATIVE_BROKEN;
	if (flags & STACK_NATIVE_UNREADABLE)
		return DROP_NATIVE_UNREADABLE;
	if (flags & STACK_NATIVE_BUSY)
		return DROP_NATIVE_BUSY;
	return flags & STACK_NATIVE_TRUNCATED ? DROP_NATIVE_TRUNCATED : DROP_NONE;
}

/*
 * Begins a walk at u->pc, u->sp and u->fp, which belong to the task in `process`. `runtime`: where
 * Python frames follow, an address in the data of the interpreter; else 0.
 */
static __always_inline void unwind_begin(struct unwind *u, struct stack *s,
					 struct task_struct *task, __u64 process, __u64 runtime,
					 enum unwind_of of)
{
	unwind_mappings(u, task, process);
	u->tag_clock = (__u16)(bpf_ktime_get_boot_ns() >> 34);
	u->slot = 0;
	u->window_at = 0;
	u->runtime = runtime;
	u->exact = u->leaf = of != UNWIND_CALLER;
	u->caller = of == UNWIND_CALLER;
	unwind_interpreter(u, task, of);
	runs_begin(u, s);
}

/* Ends a walk, and counts a stack that is cut. */
static __always_inline void unwind_end(struct unwind *u, struct stack *s)
{
	enum drop_reason cut = unwind_cut(s->flags);

	if (cut != DROP_NONE)
		drop(cut);
	runs_end(u, s);
}

#endif
