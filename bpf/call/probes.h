/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_PROBES_H
#define GPU_GADGETS_CALL_PROBES_H

#include "call/attach_point.h"
#include "program/kernel_stack.h"
#include "process/selection.h"

struct thread;

/*
 * probes: the programs of a gadget that follows calls from their entry to
 * their return. The gadget defines the two functions below and lists its
 * functions with STOCK_PROBES; API_<symbol> is the id of each, from 1 on, which
 * our attach operator passes as the cookie.
 *
 * enter: the current thread enters function `api`; the program may not sleep. `t` is
 * thread_known(), NULL at its first call.
 * leave: it returned from a function that is probed, perhaps from a nested one.
 * Neither is called for a process that was not selected.
 */
static __always_inline int enter(struct pt_regs *ctx, struct thread *t, __u32 api);
static __always_inline int leave(struct pt_regs *ctx, bool may_sleep);
static __always_inline struct thread *thread_known(void); /* call/thread.h */

/* The stack pointer at the return of a call whose entry had `entry_sp`. */
#if defined(__TARGET_ARCH_x86)
#define RETURNED_SP(entry_sp) ((entry_sp) + 8) /* ret popped the return address */
#else
#define RETURNED_SP(entry_sp) (entry_sp)
#endif

/* Whether a process was not selected. One that has called before was: `t`. */
static __always_inline bool discard_thread(const struct thread *t)
{
	if (gadget_filter_by_mntns &&
	    gadget_should_discard_mntns_id(gadget_get_current_mntns_id()))
		return true;
	return !t && !selection_has(bpf_get_current_pid_tgid() >> 32);
}

static __always_inline bool discard(void)
{
	return discard_thread(0);
}

#ifndef GPU_GADGETS_CALL_BUDGET_H /* a gadget without a budget */
static __always_inline __u64 budget_clock(void)
{
	return 0;
}

static __always_inline void budget_entered(__u32 api, __u64 begin)
{
}

static __always_inline void budget_begin(bool is_entry)
{
}

static __always_inline void budget_end(__u32 api, bool is_return)
{
}

#define BUDGET_RETURNS 0
#endif

static __always_inline int selected_enter(struct pt_regs *ctx, __u32 api)
{
	__u64 begin = budget_clock();
	struct thread *t = thread_known();
	int result;

	if (discard_thread(t))
		return 0;
	result = enter(ctx, t, api);
	budget_entered(api, begin);
	return result;
}

static __always_inline int selected_leave(struct pt_regs *ctx, bool may_sleep)
{
	budget_begin(false);
	leave(ctx, may_sleep);
	budget_end(BUDGET_RETURNS, true);
	return 0;
}

#ifndef LINUX_5_10
SEC("uprobe/gadget_program_disabled")
int call_enter_perf(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_PERF ? selected_enter(ctx, bpf_get_attach_cookie(ctx)) : 0;
}

SEC("uprobe.s/gadget_program_disabled")
int call_exit_perf(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_PERF ? selected_leave(ctx, true) : 0;
}

SEC("uprobe.multi/gadget_program_disabled")
int call_enter_multi(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_MULTI ? selected_enter(ctx, bpf_get_attach_cookie(ctx)) : 0;
}

SEC("uprobe.multi.s/gadget_program_disabled")
int call_exit_multi(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_MULTI ? selected_leave(ctx, true) : 0;
}

ATTACH_PROGRAMS(call_enter_perf, call_exit_perf, call_enter_multi, call_exit_multi);
#endif

/*
 * The same for unmodified ig, which finds libraries by ld.so.cache and knows
 * neither cookies nor sleepable programs: one thin program for each function,
 * which stores its id and calls the shared one.
 */
int stock_enter(struct pt_regs *ctx);
int stock_exit(struct pt_regs *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, int(struct pt_regs *));
} stock_programs SEC(".maps") = { .values = { [0] = &stock_enter, [1] = &stock_exit } };

/* Thread → the id whose thin program is handing over. Set and used at once. */
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
	return api ? selected_enter(ctx, *api) : 0;
}

SEC("uprobe/gadget_program_disabled")
int stock_exit(struct pt_regs *ctx)
{
	kernel_stack_only();
	return attach_mode == ATTACH_STOCK ? leave(ctx, false) : 0;
}

static __always_inline int stock_hand_over(struct pt_regs *ctx, __u32 api)
{
	__u64 thread = bpf_get_current_pid_tgid();

	bpf_map_update_elem(&stock_api_by_thread, &thread, &api, BPF_ANY);
	bpf_tail_call(ctx, &stock_programs, 0);
	return 0;
}

/* The two thin programs of a function that `library` exports. */
#define STOCK_PROBES(library, symbol)                                              \
	SEC("uprobe/" #library ":" #symbol) int enter_##symbol(struct pt_regs *ctx) \
	{                                                                           \
		return stock_hand_over(ctx, API_##symbol);                          \
	}                                                                           \
	SEC("uretprobe/" #library ":" #symbol) int exit_##symbol(struct pt_regs *ctx) \
	{                                                                           \
		bpf_tail_call(ctx, &stock_programs, 1);                             \
		return 0;                                                           \
	}

/* Where the library's name is a macro: the same, and the name as a string. */
#define STOCK_PROBES_OF(library, symbol) STOCK_PROBES(library, symbol)
#define LIBRARY_TEXT_OF(library) LIBRARY_TEXT(library)
#define LIBRARY_TEXT(library) #library

/*
 * A function that is probed on demand only (call/demand.h), which unmodified ig cannot do: it
 * has no stock probes. On Linux 5.10 our attach operator takes its program from
 * ATTACH_PROGRAMS_OF_POINTS.
 */
#ifdef LINUX_5_10
#define DEMAND_PROBE(symbol)                                                          \
	SEC("uprobe/gadget_program_disabled") int enter_##symbol(struct pt_regs *ctx) \
	{                                                                             \
		return stock_hand_over(ctx, API_##symbol);                            \
	}
#else
#define DEMAND_PROBE(symbol)
#endif

#endif
