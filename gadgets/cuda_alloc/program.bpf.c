// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
//
// cuda_alloc: which call stack holds, takes and frees the GPU's memory.
//
// Enter probes note the arguments of a driver call; exit probes see whether it
// succeeded, take the stack, and add to the row of (process, stack, kind,
// device). User space reads the rows; see gadget.yaml for every field.

#include <vmlinux.h>

#include <asm-generic/errno.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define WITH_QUOTAS /* process/quota.h */

#define GADGET_NO_BUF_RESERVE
#include <gadget/buffer.h>
#include <gadget/common.h>
#include <gadget/macros.h>
#include <gadget/mntns_filter.h>
#include <gadget/types.h>

#include "call/budget.h"
#include "call/probes.h"
#include "memory/inflight.h"

#ifndef LINUX_5_10
#include "nccl/memory/calls.h"
#endif

#include "call/backward_probes.h"
#include "call/capture.h"
#include "memory/returns.h"
#include "python/python.h"
#ifndef LINUX_5_10
#include "torch/torch.h"
#include "torch/requested.h"
#endif

#define X(symbol, op, kind, flags, a, b, c) \
	{ LIBRARY_TEXT_OF(DRIVER_LIBRARY), #symbol, API_##symbol, MEMORY_ATTACH(op) },
#define Y(symbol, op, kind, flags, a, b, c) \
	{ LIBRARY_TEXT_OF(DRIVER_LIBRARY), #symbol, API_##symbol, \
	  ATTACH_EXIT | ATTACH_FACT(FACT_DEVICE) },
const struct attach_point attach_points[] ATTACH_POINTS = { MEMORY_PROBED_APIS(X)
								    MEMORY_DEMAND_APIS(Y) };
#undef X
#undef Y

#ifndef LINUX_5_10
#define X(symbol, id, op) { "libc10", #symbol, id, ATTACH_ENTRY_SLEEPS },
const struct attach_point torch_attach_points[] ATTACH_POINTS = { TORCH_APIS(X) BACKWARD_POINT };
#undef X
#endif

#include "memory/oom.h"

#ifndef LINUX_5_10
/* A function of NCCL, on the thread's device, which a new communicator has. */
static __always_inline int nccl_entered(struct pt_regs *ctx, struct thread *t, __u32 cookie)
{
	__s32 device;

	if (!t)
		t = thread_current(process_id_of(task_current()), true);
	if (!t) {
		drop(DROP_SCRATCH);
		return 0;
	}
	context_needed(t, &device);
	return owner_enter(ctx, cookie, device);
}
#endif

static __always_inline int enter(struct pt_regs *ctx, struct thread *t, __u32 api)
{
#ifndef LINUX_5_10
	if (nccl_owners && api & OWNER_COOKIE)
		return nccl_entered(ctx, t, api);
#endif
	call_enter(ctx, t, api);
	return 0;
}

#ifndef LINUX_5_10
/*
 * A report of PyTorch's allocator (torch/torch.h), or the beginning of a backward pass
 * (call/backward_probes.h). In programs that may sleep. In three parts, since what one keeps on
 * the program's stack the unwinder cannot have.
 */
static __always_inline int torch_reported(struct pt_regs *ctx, __u32 cookie)
{
	struct thread *t = thread_known();
	__u64 stack;

	if (discard_thread(t))
		return 0;
	if ((__u8)cookie == BACKWARD_ID)
		t = backward_entered(ctx, t, cookie >> 8);
	else
		t = budget_counts_only() ? 0 : torch_begin(ctx, t, cookie);
	if (!t)
		return 0;
	stack = take_entry_stack(ctx, t);
	if (t->backward.argument)
		return backward_begin(t, stack);
	t->call.tensor.span = span_current(task_current(), true);
	torch_end(t, stack);
	return 0;
}

static __always_inline int torch_selected(struct pt_regs *ctx, __u32 cookie)
{
	if (budget_ppm && discard())
		return 0;
	budget_begin(true);
	torch_reported(ctx, cookie);
	budget_end(BUDGET_REPORTS, false);
	return 0;
}

SEC("uprobe.s/gadget_program_disabled")
int torch_enter_perf(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_PERF ? torch_selected(ctx, bpf_get_attach_cookie(ctx)) : 0;
}

SEC("uprobe.multi.s/gadget_program_disabled")
int torch_enter_multi(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_MULTI ? torch_selected(ctx, bpf_get_attach_cookie(ctx)) : 0;
}

ATTACH_SLEEPING_PROGRAMS(torch_enter_perf, torch_enter_multi);
#endif

/* The place and the size of an allocation that was refused. */
static __always_inline void refused(struct thread *t, const struct memory_api *api, bool may_sleep)
{
	if (api->kind == KIND_ARRAY) {
		t->call.live.size_bytes = 0;
		if (t->call.b) /* else that is why it was refused */
			call_array_size(t, t->call.api, may_sleep);
	}
	call_place(t, api, may_sleep);
}

#ifdef LINUX_5_10
/* Not split as below: with the functions there Linux 5.10 does not see frees. */
static __always_inline int leave(struct pt_regs *ctx, bool may_sleep)
{
	struct thread *t = thread_known();
	const struct memory_api *api;
	struct live_key key;
	__u64 sp = PT_REGS_SP(ctx);
	__u32 result = PT_REGS_RC(ctx);
	__u64 stack;
	__u32 id;

	if (!t || context_answer(ctx, t, may_sleep))
		return 0;
	if (!t->call.sp || sp < RETURNED_SP(t->call.sp))
		return 0; /* no call of ours, or a nested one */
	if (sp > RETURNED_SP(t->call.sp)) {
		call_abandon(t);
		t->call.sp = 0;
		return 0;
	}
	id = t->call.api;
	api = memory_api_of(id);
	if (!call_allocates(api->op) && !call_made_context(t, api->op, result)) {
		/* Its loop is deep: in call_returned() it would need 576 bytes of stack. */
		if (api->op == MEMORY_VMM_UNMAP) {
			if (!result)
				vmm_unmap(t->process, t->call.a, t->call.b);
			t->call.sp = 0;
			return 0;
		}
		call_returned(t, id, result != 0, may_sleep);
		t->call.sp = 0;
		return 0;
	}
	stack = take_stack(ctx, t, t->call.ip, may_sleep);
	/*
	 * Read again: the verifier of Linux 6.1 may walk what follows with the one op that
	 * call_allocates() compared with, take that for all of them, and remove the code
	 * for the others: an array then has the address of its descriptor for its size.
	 */
	api = memory_api_of(t->call.api);
	t->call.live.span = 0;
	if (result) {
		refused(t, api, may_sleep);
		oom_report(t, id, result, stack);
	} else if (call_allocated(t, api, &key, may_sleep)) {
		t->call.live.stack = stack;
		live_insert(&key, &t->call.live);
		if (api->kind == KIND_CONTEXT)
			call_returned(t, id, false, may_sleep);
	}
	t->call.sp = 0;
	return 0;
}
#else
/* What an allocating call needs whether or not it succeeded. In functions of their own, this
 * and the next one leave more of the stack to the unwinder and to oom_report(). */
static __noinline int allocation_seen(struct thread *t, bool failed, bool may_sleep)
{
	if (!t)
		return 0;
	t->call.live.span = span_current(task_current(), may_sleep);
	if (failed)
		refused(t, memory_api_of(t->call.api), may_sleep);
	return 0;
}

/* It succeeded: the allocation to t->call.live, all but the stack. False: a loss, counted. */
static __noinline bool allocation_made(struct thread *t, struct live_key *key, bool may_sleep)
{
	if (!t || !key)
		return false;
	/*
	 * The row is read again: the verifier of Linux 6.1 may walk what follows with the one
	 * op that call_allocates() compared with, take that for all of them, and remove the
	 * code for the others: an array then has the address of its descriptor for its size.
	 */
	if (!call_allocated(t, memory_api_of(t->call.api), key, may_sleep))
		return false;
	if (nccl_owners)
		t->call.live.owner = owner_now(t->process, t->call.sp, t->call.live.device);
	return true;
}

/* A function has returned in a thread that is in no call of the driver. Whether its stack is
 * wanted: t->call is then a call that allocates. */
static __noinline bool returns_otherwise(struct pt_regs *ctx, struct thread *t, bool may_sleep)
{
	enum owner_return nccl;

	if (!ctx || !t)
		return false;
	if (nccl_owners) {
		nccl = owner_leave(ctx, t, may_sleep);
		if (nccl)
			return nccl == OWNER_WANTS_STACK;
	}
	return interposed_refused(t, PT_REGS_SP(ctx), PT_REGS_RC(ctx));
}

static __always_inline int leave(struct pt_regs *ctx, bool may_sleep)
{
	struct thread *t = thread_known();
	const struct memory_api *api;
	struct live_key key;
	__u64 sp, stack;
	__u32 result, id;

	if (!t || context_answer(ctx, t, may_sleep))
		return 0;
	sp = PT_REGS_SP(ctx);
	result = PT_REGS_RC(ctx);
	if (t->call.sp && sp > RETURNED_SP(t->call.sp)) {
		call_abandon(t);
		t->call.sp = 0;
	}
	if (t->call.sp ? sp < RETURNED_SP(t->call.sp) : !returns_otherwise(ctx, t, may_sleep))
		return 0; /* a nested call, or none of ours */
	/* One copy of the id for all that follows: the verifier of Linux 5.10 removed the code
	 * for frees where it was read again. */
	id = t->call.api;
	api = memory_api_of(id);
	if (!call_allocates(api->op) && !call_made_context(t, api->op, result)) {
		call_returned(t, id, result != 0, may_sleep);
	} else {
		stack = take_stack(ctx, t, t->call.ip, may_sleep);
		if (nccl_owners && owner_line(stack))
			return 0;
		allocation_seen(t, result != 0, may_sleep);
		if (result) {
			oom_report(t, t->call.api, result, stack);
		} else if (allocation_made(t, &key, may_sleep)) {
			t->call.live.stack = stack;
			live_insert(&key, &t->call.live);
			if (key.space == SPACE_CONTEXT)
				call_returned(t, id, false, may_sleep);
		}
	}
	t->call.sp = 0;
	return 0;
}
#endif

#define X(symbol, op, kind, flags, a, b, c) STOCK_PROBES_OF(DRIVER_LIBRARY, symbol)
MEMORY_PROBED_APIS(X)
#undef X
#define X(symbol, op, kind, flags, a, b, c) DEMAND_PROBE(symbol)
MEMORY_DEMAND_APIS(X)
#undef X

#ifdef LINUX_5_10
/* There are no cookies: our attach operator, too, takes a program for each point. */
#define X(symbol, op, kind, flags, a, b, c) [API_##symbol - 1] = &enter_##symbol,
ATTACH_PROGRAMS_OF_POINTS(MEMORY_API_COUNT - 1, MEMORY_APIS(X), stock_exit);
#undef X
#endif

/*
 * Life of processes. A process's id changes at exec and is gone with its last
 * thread; what it held then was freed by the driver.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread *t = thread_of(task);

	if (t && t->process == process_id_of(task) && t->call.sp)
		drop(DROP_DIED_IN_CALL);
	thread_gone(task);
	if (process_exited(task)) {
		selection_gone(task->tgid);
		span_gone(task->tgid);
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	process_replaced(task);
	span_gone(task->tgid);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	selection_inherit(parent->tgid, child->tgid);
	span_inherit(parent->tgid, child->tgid);
	if (attach_mode == ATTACH_STOCK)
		python_forks(parent, child);
	device_thread_started(child);
#ifndef LINUX_5_10
	owner_thread_started(parent, child);
#endif
	return 0;
}

#include "rows.h"
#ifndef LINUX_5_10
#include "buffers.h"
#endif

DROPS_DATA_SOURCE

char LICENSE[] SEC("license") = "Dual BSD/GPL";
