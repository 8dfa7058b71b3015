/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_PROBED_H
#define GPU_GADGETS_STACK_PROBED_H

#include "program/storage.h"
#include "stack/unwind.h"

/*
 * probed: the native callers of a probed function, by the rules of their files.
 */

/* Thread → its walk. Written and read by its own probes only. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct unwind);
} unwind_by_task SEC(".maps");

/* Thread → rules that it keeps. The same. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct unwind_more);
} unwind_more_by_task SEC(".maps");

/* A global function, which the verifier follows once, whatever calls it. */
__noinline int unwind_step(struct unwind *u, struct unwind_more *m, struct stack *s)
{
	return u && m && s ? unwind_one(u, m, s, bpf_get_current_task_btf(), UNWIND_CALLER) : 1;
}

/*
 * As native_unwind() of stack/native.h. `runtime`: where Python frames follow, an address in the
 * data of the interpreter; else 0.
 */
static __always_inline void unwind_by_rules(struct stack *s, __u64 process, __u64 function,
					    __u64 caller, __u64 sp, __u64 fp, __u64 runtime)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct unwind *u = storage_get(&unwind_by_task, task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct unwind_more *m =
		storage_get(&unwind_more_by_task, task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u32 i;

	native_called(s, function, caller);
	if (!u || !m) {
		s->flags |= STACK_NATIVE_BUSY;
		drop(DROP_NATIVE_BUSY);
		return;
	}
	u->pc = caller;
	u->sp = sp;
	u->fp = fp;
	u->lr = 0;
	unwind_begin(u, s, task, process, runtime, UNWIND_CALLER);
	for (i = 0; i < UNWIND_STEPS; i++) {
		if (unwind_step(u, m, s))
			break;
		runs_seek(u, s);
	}
	if (i == UNWIND_STEPS)
		s->flags |= STACK_NATIVE_TRUNCATED;
	unwind_end(u, s);
}

#endif
