// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
/*
 * Test-only: takes a stack at each call of mark(id) and hands it over by id.
 */
#include <vmlinux.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "program/kernel_stack.h"
#include "python/python.h"

/* The current thread → its stack being filled. Ends with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stack);
} scratch SEC(".maps");

struct mark {
	__u64 process;
	__u64 stack; /* key of stacks_by_id */
	__s64 result;
};

/* mark()'s argument → the stack then. Read by the test. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, __u64);
	__type(value, struct mark);
} samples_by_id SEC(".maps");

static __always_inline struct stack *take(__u64 *process)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	*process = process_id_of(task);
	return bpf_task_storage_get(&scratch, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* What a gadget does with a stack: a content hash, and a look whether it is new. */
static __always_inline void keep(__u64 id, struct stack *s, __u64 process, long result)
{
	struct mark sample = { .process = process, .result = result };
	__u64 h = (__u64)s->flags << 32 | s->python_count;

	for (__u32 i = 0; i < STACK_PYTHON_FRAMES; i++) {
		if (i >= s->python_count)
			break;
		h = (h ^ s->python[i].symbol) * 0x9e3779b97f4a7c15ULL;
		h = (h ^ s->python[i].line ^ (h >> 32)) * 0x9e3779b97f4a7c15ULL;
	}
	if (!bpf_map_lookup_elem(&stacks_by_id, &h) &&
	    bpf_map_update_elem(&stacks_by_id, &h, s, BPF_NOEXIST))
		drop(DROP_STACKS_FULL);
	/* Id 0 only measures. */
	sample.stack = h;
	if (id)
		bpf_map_update_elem(&samples_by_id, &id, &sample, BPF_ANY);
}

SEC("uprobe.multi.s")
int mark_sleepable(struct pt_regs *ctx)
{
	__u64 process;
	struct stack *s = take(&process);

	kernel_stack_only();
	if (s)
		keep(PT_REGS_PARM1(ctx), s, process, python_unwind_sleepable(s, process));
	return 0;
}

SEC("uprobe.multi")
int mark_atomic(struct pt_regs *ctx)
{
	struct user_fault fault = {};
	__u64 process;
	struct stack *s = take(&process);

	kernel_stack_only();
	if (s)
		keep(PT_REGS_PARM1(ctx), s, process, python_unwind(s, &fault, process));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
