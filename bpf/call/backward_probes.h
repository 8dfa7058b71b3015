/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_BACKWARD_PROBES_H
#define GPU_GADGETS_CALL_BACKWARD_PROBES_H

#include "call/capture.h"

/*
 * backward_probes: the program at the entry of Engine::execute_with_graph_task, for a gadget
 * that has BACKWARD_POINT in its table.
 */
#ifndef LINUX_5_10

/* Its second parameter. What it returns, std::shared_ptr-like, is at an address that comes
 * as the first on x86-64 and in a register of its own on arm64; `this` comes before it. */
#if defined(__TARGET_ARCH_x86)
#define BACKWARD_ARGUMENT(ctx) PT_REGS_PARM3(ctx)
#else
#define BACKWARD_ARGUMENT(ctx) PT_REGS_PARM2(ctx)
#endif

/* Where the process has the variables of the library whose function at `ip` is probed. */
static __noinline int backward_process_of(__u64 process, __u64 ip, __u32 index)
{
	struct backward_process *p, fresh = {};
	struct tls_block *block;

	p = bpf_map_lookup_elem(&backward_by_process, &process);
	if (p) {
		__sync_fetch_and_add(&p->passes, 1);
		return 0;
	}
	block = bpf_map_lookup_elem(&tls_blocks, &index);
	if (!block || !block->access || block->bytes > TLS_BLOCK_BYTES) {
		drop(DROP_BACKWARD_UNKNOWN);
		return 0;
	}
	fresh.block = *block;
	/* Libraries are mapped at a multiple of the page; the probe is near the entry. */
	fresh.block.at += (ip - block->function) & ~4095ULL;
	fresh.passes = 1;
	bpf_map_update_elem(&backward_by_process, &process, &fresh, BPF_NOEXIST);
	return 0;
}

/* At the entry of the probed function: the thread, whose stack is to be taken, for
 * backward_begin(). NULL: it is not. */
static __noinline struct thread *backward_entered(struct pt_regs *ctx, struct thread *t,
						  __u32 index)
{
	if (!stacks)
		return 0;
	if (!t)
		t = thread_current(process_id_of(task_current()), true);
	if (!t) {
		drop(DROP_SCRATCH);
		return 0;
	}
	backward_process_of(t->process, PT_REGS_IP(ctx), index);
	t->backward.argument = BACKWARD_ARGUMENT(ctx);
	return t;
}

/* A pass begins, whose caller has `stack`; 0: there was no room for it. */
__noinline int backward_begin(struct thread *t, __u64 stack)
{
	struct backward_pass pass = {};
	struct backward_key key = {};
	__u64 words[2];

	if (!t)
		return 0;
	pass.argument = t->backward.argument;
	t->backward.argument = 0;
	if (bpf_probe_read_user(words, sizeof(words), (void *)pass.argument) || !words[0]) {
		drop(DROP_BACKWARD_UNKNOWN);
		return 0;
	}
	if (t->stack.python_count)
		pass.stack = stack;
	pass.control = words[1];
	pass.outer = t->backward.begun;
	pass.place = t->backward.place;
	pass.tid = bpf_get_current_pid_tgid();
	pass.own = t->backward.own;
	key.process = t->process;
	key.task = t->backward.begun = words[0];
	if (!bpf_map_lookup_elem(&backward_passes, &key) &&
	    !QUOTA_COUNT(QUOTA_PASSES, MAX_BACKWARD_PASSES / 4)) {
		drop(DROP_BACKWARD_UNKNOWN);
		return 0;
	}
	bpf_map_update_elem(&backward_passes, &key, &pass, BPF_ANY);
	return 0;
}

#ifndef GPU_GADGETS_CALL_BUDGET_H
#define BUDGET_REPORTS 0
#endif

static __always_inline int backward_selected(struct pt_regs *ctx, __u32 cookie)
{
	struct thread *t;

	budget_begin(true);
	t = thread_known();
	if (!discard_thread(t)) {
		t = backward_entered(ctx, t, cookie >> 8);
		if (t)
			backward_begin(t, take_entry_stack(ctx, t));
	}
	budget_end(BUDGET_REPORTS, false);
	return 0;
}

/* Declares the programs, for a gadget that has no others that may sleep. */
#define BACKWARD_PROGRAMS \
	SEC("uprobe.s/gadget_program_disabled") \
	int backward_enter_perf(struct pt_regs *ctx) \
	{ \
		kernel_stack_only(); \
		return attach_mode == ATTACH_PERF \
			       ? backward_selected(ctx, bpf_get_attach_cookie(ctx)) \
			       : 0; \
	} \
\
	SEC("uprobe.multi.s/gadget_program_disabled") \
	int backward_enter_multi(struct pt_regs *ctx) \
	{ \
		kernel_stack_only(); \
		return attach_mode == ATTACH_MULTI \
			       ? backward_selected(ctx, bpf_get_attach_cookie(ctx)) \
			       : 0; \
	} \
\
	ATTACH_SLEEPING_PROGRAMS(backward_enter_perf, backward_enter_multi);

#endif

#endif
