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

#define GADGET_NO_BUF_RESERVE
#include <gadget/buffer.h>
#include <gadget/common.h>
#include <gadget/macros.h>
#include <gadget/mntns_filter.h>
#include <gadget/types.h>

#include "attach_point.h"
#include "capture.h"
#include "cuda_calls.h"
#include "kernel_stack.h"
#include "python.h"
#include "selection.h"

/* Off: rows carry no stack, which shows what the rest costs. */
const volatile bool stacks = true;
GADGET_PARAM(stacks);

#define X(symbol, op, kind, flags, a, b, c) { "libcuda", #symbol, API_##symbol, ATTACH_EXIT },
const struct attach_point attach_points[] ATTACH_POINTS = { CUDA_APIS(X) };
#undef X

#include "oom.h"

static __always_inline bool discard(void)
{
	if (gadget_filter_by_mntns &&
	    gadget_should_discard_mntns_id(gadget_get_current_mntns_id()))
		return true;
	return !selection_has(bpf_get_current_pid_tgid() >> 32);
}

static __always_inline int enter(struct pt_regs *ctx, __u32 api)
{
	if (discard())
		return 0;
	call_enter(ctx, process_id_of(task_current()), api);
	return 0;
}

static __always_inline __u64 take_stack(struct pt_regs *ctx, struct thread *t, bool may_sleep)
{
	if (!stacks)
		return 0;
	t->stack.flags = 0;
	t->stack.python_count = 0;
	native_unwind(&t->stack, t->process, t->call.ip, PT_REGS_IP(ctx), PT_REGS_SP(ctx),
		      PT_REGS_FP(ctx));
	/* Losses are counted there; what could be read is the stack. */
#ifndef LINUX_5_10
	if (may_sleep)
		python_unwind_sleepable(&t->stack, t->process);
	else
#endif
		python_unwind(&t->stack, &t->fault, t->process);
	return capture_store(t);
}

static __always_inline int leave(struct pt_regs *ctx, bool may_sleep)
{
	struct thread *t = thread_current(process_id_of(task_current()), false);
	const struct cuda_api *api;
	struct live_key key;
	__u64 sp = PT_REGS_SP(ctx);
	__u32 result = PT_REGS_RC(ctx);
	__u64 stack;
	__u32 id;

	if (!t || !t->call.sp || sp < RETURNED_SP(t->call.sp))
		return 0; /* no call of ours, or a nested one */
	if (sp > RETURNED_SP(t->call.sp)) {
		call_abandon(t);
		t->call.sp = 0;
		return 0;
	}
	id = t->call.api;
	api = cuda_api_of(id);
	if (!call_allocates(api->op)) {
#ifdef LINUX_5_10
		/* Its loop is deep: in call_returned() it would need 576 bytes of stack. */
		if (api->op == CUDA_VMM_UNMAP) {
			if (!result)
				vmm_unmap(t->process, t->call.a, t->call.b);
			t->call.sp = 0;
			return 0;
		}
#endif
		call_returned(t, id, result != 0, may_sleep);
		t->call.sp = 0;
		return 0;
	}
	stack = take_stack(ctx, t, may_sleep);
	t->call.live.span = 0;
#ifndef LINUX_5_10
	t->call.live.span = span_current(task_current(), may_sleep);
#endif
	if (result) {
		context_current(t, &t->call.live.device);
		oom_report(t, id, result, stack);
	} else if (call_allocated(t, api, &key, may_sleep)) {
		t->call.live.stack = stack;
		live_insert(&key, &t->call.live);
	}
	t->call.sp = 0;
	return 0;
}

#ifndef LINUX_5_10
SEC("uprobe/gadget_program_disabled")
int cuda_enter(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_PERF ? enter(ctx, bpf_get_attach_cookie(ctx)) : 0;
}

SEC("uprobe.s/gadget_program_disabled")
int cuda_exit(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_PERF ? leave(ctx, true) : 0;
}

SEC("uprobe.multi/gadget_program_disabled")
int cuda_enter_multi(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_MULTI ? enter(ctx, bpf_get_attach_cookie(ctx)) : 0;
}

SEC("uprobe.multi.s/gadget_program_disabled")
int cuda_exit_multi(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_MULTI ? leave(ctx, true) : 0;
}

ATTACH_PROGRAMS(cuda_enter, cuda_exit, cuda_enter_multi, cuda_exit_multi);
#endif

/*
 * The same for unmodified ig, which finds libraries by ld.so.cache and knows
 * neither cookies nor sleepable programs: one thin program for each entry point,
 * which notes the API and hands over to the shared one.
 */
int stock_enter(struct pt_regs *ctx);
int stock_exit(struct pt_regs *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, int(struct pt_regs *));
} stock_programs SEC(".maps") = { .values = { [0] = &stock_enter, [1] = &stock_exit } };

/* Thread → the API whose thin program is handing over. Set and used at once. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u32);
} stock_api_by_thread SEC(".maps");

SEC("uprobe/gadget_program_disabled")
int stock_enter(struct pt_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u32 *api;

	kernel_stack_only();
	api = bpf_map_lookup_elem(&stock_api_by_thread, &thread);
	return api ? enter(ctx, *api) : 0;
}

SEC("uprobe/gadget_program_disabled")
int stock_exit(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_STOCK ? leave(ctx, false) : 0;
}

#define X(symbol, op, kind, flags, a, b, c)                                         \
	SEC("uprobe/libcuda:" #symbol) int enter_##symbol(struct pt_regs *ctx)      \
	{                                                                           \
		__u64 thread = bpf_get_current_pid_tgid();                          \
		__u32 api = API_##symbol;                                           \
                                                                                    \
		bpf_map_update_elem(&stock_api_by_thread, &thread, &api, BPF_ANY);  \
		bpf_tail_call(ctx, &stock_programs, 0);                             \
		return 0;                                                           \
	}                                                                           \
	SEC("uretprobe/libcuda:" #symbol) int exit_##symbol(struct pt_regs *ctx)    \
	{                                                                           \
		bpf_tail_call(ctx, &stock_programs, 1);                             \
		return 0;                                                           \
	}
CUDA_APIS(X)
#undef X

#ifdef LINUX_5_10
/* There are no cookies: our attach operator, too, takes a program for each point. */
#define X(symbol, op, kind, flags, a, b, c) [API_##symbol - 1] = &enter_##symbol,
ATTACH_PROGRAMS_OF_POINTS(CUDA_API_COUNT - 1, CUDA_APIS(X), stock_exit);
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
	return 0;
}

/* One row as user space sees it. */
struct alloc {
	struct gadget_process proc;
	__u64 process;
	__u64 stack_id;
	__s32 device;
	char kind[KIND_NAME_BYTES + 4]; /* so that there is no padding */
	char span_id[SPAN_TEXT_BYTES];
	__u64 row_boot_ns;
	gadget_bytes inuse_bytes;
	gadget_bytes alloc_bytes;
	gadget_bytes peak_bytes;
	__u64 inuse_objects;
	gadget_bytes freed_bytes;
	gadget_bytes implicit_bytes;
	__u64 alloc_objects;
	__u64 freed_objects;
	__u64 implicit_objects;
};

#ifdef LINUX_5_10
GADGET_ITER(allocs, alloc, dump_rows, dump_unknown);
#else
GADGET_ITER(allocs, alloc, dump_rows, dump_unknown, dump_spans);
GADGET_ITER_TARGET_MAP(dump_spans, rows_by_span);
#endif
GADGET_ITER_TARGET_MAP(dump_rows, rows_by_stack);
GADGET_ITER_TARGET_MAP(dump_unknown, unknown_rows);

static __always_inline int dump_row(struct bpf_iter__bpf_map_elem *ctx, struct row_key *key,
				    struct row *row, __u64 span, __u64 born_boot_ns)
{
	struct process *p;
	struct alloc a = {};
	bool gone;

	if (!key || !row)
		return 0;
	a.row_boot_ns = born_boot_ns;
	span_text(a.span_id, span);
	a.process = key->process;
	p = bpf_map_lookup_elem(&processes_by_id, &a.process);
	if (p)
		a.proc = p->proc;
	a.stack_id = key->stack;
	kind_name(a.kind, key->kind);
	a.device = key->device;
	/* Frees first: a row read in the middle of an update is never negative. */
	a.freed_bytes = row->freed_bytes;
	a.freed_objects = row->freed_objects;
	a.implicit_bytes = row->implicit_bytes;
	a.implicit_objects = row->implicit_objects;
	barrier();
	a.alloc_bytes = row->alloc_bytes;
	a.alloc_objects = row->alloc_objects;
	a.peak_bytes = row->peak_bytes;
	a.inuse_bytes = a.alloc_bytes - a.freed_bytes - a.implicit_bytes;
	a.inuse_objects = a.alloc_objects - a.freed_objects - a.implicit_objects;
	gone = p && p->exit_boot_ns;
#ifdef LINUX_5_10
	gone = gone || instance_ended(key->process, key->instance);
#endif
	if (gone) {
		a.implicit_bytes += a.inuse_bytes;
		a.implicit_objects += a.inuse_objects;
		a.inuse_bytes = 0;
		a.inuse_objects = 0;
	}
	if (a.alloc_objects)
		bpf_seq_write(ctx->meta->seq, &a, sizeof(a));
	return 0;
}

SEC("iter/bpf_map_elem")
int dump_rows(struct bpf_iter__bpf_map_elem *ctx)
{
	return dump_row(ctx, ctx->key, ctx->value, 0, 0);
}

SEC("iter/bpf_map_elem")
int dump_unknown(struct bpf_iter__bpf_map_elem *ctx)
{
	return dump_row(ctx, ctx->key, ctx->value, 0, 0);
}

#ifndef LINUX_5_10
SEC("iter/bpf_map_elem")
int dump_spans(struct bpf_iter__bpf_map_elem *ctx)
{
	struct span_row_key *key = ctx->key;
	struct span_row *row = ctx->value;

	return key && row ? dump_row(ctx, &key->row, &row->row, key->span, row->born_boot_ns) : 0;
}
#endif

DROPS_DATA_SOURCE

char LICENSE[] SEC("license") = "Dual BSD/GPL";
