// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
//
// cuda_kernel: which call stack launches which kernels, copies what and waits.
//
// Enter probes note the arguments of a call; exit probes see how it went and how
// long it took, take the stack, and add to the row of (process, stack, function,
// kernel, device, direction, result). User space reads the rows; see gadget.yaml for every
// field.

#include <vmlinux.h>

#include <asm-generic/errno.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define WITH_SPANS /* call/life.h */
#define WITH_QUOTAS /* process/quota.h */

#define GADGET_NO_BUF_RESERVE
#include <gadget/buffer.h>
#include <gadget/common.h>
#include <gadget/macros.h>
#include <gadget/mntns_filter.h>
#include <gadget/types.h>

#include "call/budget.h"
#include "call/probes.h"
#include "launch/inflight.h"

#include "call/backward_probes.h"
#include "call/capture.h"
#include "launch/contexts.h"
#include "python/python.h"

/* What only counts can be followed a part of the time; what teaches a fact cannot. */
#define X(symbol, op, detail, flags, a, b)                \
	{ LIBRARY_TEXT_OF(DRIVER_LIBRARY), #symbol, API_##symbol,               \
	  ATTACH_EXIT | (op <= CALL_RECORD ? ATTACH_IN_WINDOWS : 0) },
#define Y(library, symbol, op, a)                                     \
	{ #library, #symbol, API_##symbol,                            \
	  op == CALL_STUB ? ATTACH_FACT(FACT_KERNEL) : \
	  op == CALL_REGISTER ? 0 : ATTACH_EXIT | ATTACH_IN_WINDOWS },
#define Z(symbol, op, a, b) { LIBRARY_TEXT_OF(DRIVER_LIBRARY), #symbol, API_##symbol, ATTACH_EXIT },
#define D(symbol, op, a, b) \
	{ LIBRARY_TEXT_OF(DRIVER_LIBRARY), #symbol, API_##symbol, ATTACH_EXIT | ATTACH_FACT(FACT_DEVICE) },
const struct attach_point attach_points[] ATTACH_POINTS = {
	DRIVER_CALLS(X) LIBRARY_CALLS(Y) CONTEXT_PROBED_CALLS(Z) CONTEXT_DEMAND_CALLS(D)
};
#undef X
#undef Y
#undef Z
#undef D

#ifndef LINUX_5_10
const struct attach_point backward_attach_points[] ATTACH_POINTS = { BACKWARD_POINT };
BACKWARD_PROGRAMS
#endif

#include "launch/events.h"
#include "launch/device_times.h"
#include "host/programs.h"

static __always_inline int enter(struct pt_regs *ctx, struct thread *t, __u32 api)
{
	call_enter(ctx, t, api);
	return 0;
}

static __always_inline int leave(struct pt_regs *ctx, bool may_sleep)
{
	struct thread *t = thread_known();
	__u64 sp = PT_REGS_SP(ctx), start, ip, now, ns, stacked;
	struct row_key key = {};
	struct inflight *call;
	struct row *row;
	__u32 weight = 1;

	if (!t || context_answer(ctx, t, may_sleep))
		return 0;
	call = &t->call;
	if (call->sp && sp >= RETURNED_SP(call->sp)) {
		if (sp > RETURNED_SP(call->sp)) {
			drop(DROP_INFLIGHT_STALE);
			call->sp = 0;
		}
	}
	now = bpf_ktime_get_boot_ns();
	key.result = PT_REGS_RC(ctx);
	if (call->sp && sp == RETURNED_SP(call->sp)) {
		key.api = call->api;
		start = call->start_boot_ns;
		ip = call->ip;
		call->sp = 0;
		if (call_is_of_contexts(call))
			return key.result ? 0 : call_of_contexts(t, may_sleep);
		call_describe(t, key.result, may_sleep);
	} else if (call->library.sp && call->library.process == t->process &&
		   sp == RETURNED_SP(call->library.sp)) {
		key.api = call->library.api;
		start = call->library.start_boot_ns;
		ip = call->library.ip;
		__builtin_memset(&call->facts, 0, sizeof(call->facts));
		call->facts.device = launch_device(t);
		if (budget_ppm)
			call->window = call->library.window;
		call->library.sp = 0;
	} else {
		return 0; /* a nested one */
	}
	ns = now - start;
	key.process = t->process;
	key.function = call->facts.function;
	key.device = call->facts.device;
	key.direction = call->facts.direction;
	key.captured = call->facts.captured;
	window_count(&call->window, -1);
	if (sample_every() != 1)
		weight = call_draw(&key, call->facts.bytes, ns, call->window.number,
				   window_weight(&call->window));
	row = 0;
	if (span_ids)
		call->facts.span = span_of_call();
	if (weight) {
		key.stack = unwind_stack(ctx, t, ip, may_sleep);
		row = span_ids && call->facts.span ? 0 : row_find(&key);
		if (!row) { /* where there is a row, its stack is stored; without, it may be gone */
			t->stack_id = 0;
			key.stack = capture_store(t, key.stack);
		}
	}
	device_launched(&key, start, call->facts.span);
	if (!weight)
		return 0;
	if (!sample_every()) {
		stacked = bpf_ktime_get_boot_ns();
		sample_spent(stacked, stacked - now);
	}
	if (!row)
		row = row_of(&key, &call->facts);
	if (row)
		row_add(row, &key, &call->facts, ns, weight, &call->window);
	else if (process_has_room(key.process, call->facts.bytes))
		drop_bytes(DROP_UNKNOWN_FULL, call->facts.bytes);
	if (events || timeline_events)
		event_send(t, &key, start, now, weight * window_weight(&call->window));
	return 0;
}

#define X(symbol, op, detail, flags, a, b) STOCK_PROBES_OF(DRIVER_LIBRARY, symbol)
DRIVER_CALLS(X)
#undef X
#define X(library, symbol, op, a) STOCK_PROBES(library, symbol)
LIBRARY_CALLS(X)
#undef X
#define X(symbol, op, a, b) STOCK_PROBES_OF(DRIVER_LIBRARY, symbol)
CONTEXT_PROBED_CALLS(X)
#undef X
#define X(symbol, op, a, b) DEMAND_PROBE(symbol)
CONTEXT_DEMAND_CALLS(X)
#undef X

#ifdef LINUX_5_10
/* There are no cookies: our attach operator, too, takes a program for each point. */
#define X(symbol, op, detail, flags, a, b) [API_##symbol - 1] = &enter_##symbol,
#define Y(library, symbol, op, a) [API_##symbol - 1] = &enter_##symbol,
#define Z(symbol, op, a, b) [API_##symbol - 1] = &enter_##symbol,
ATTACH_PROGRAMS_OF_POINTS(CONTEXT_API_COUNT - 1, DRIVER_CALLS(X) LIBRARY_CALLS(Y) CONTEXT_CALLS(Z),
			  stock_exit);
#undef X
#undef Y
#undef Z
#endif

#include "call/life.h"

#ifdef LINUX_5_10
GADGET_ITER(calls, call, dump_rows, dump_unknown);
#else
GADGET_ITER(calls, call, dump_rows, dump_unknown, dump_spans);
GADGET_ITER_TARGET_MAP(dump_spans, rows_by_span);
#endif
GADGET_ITER_TARGET_MAP(dump_rows, rows_by_stack);
GADGET_ITER_TARGET_MAP(dump_unknown, unknown_rows);

SEC("iter/bpf_map_elem")
int dump_rows(struct bpf_iter__bpf_map_elem *ctx)
{
	return dump_call(ctx, ctx->key, ctx->value, 0, 0);
}

SEC("iter/bpf_map_elem")
int dump_unknown(struct bpf_iter__bpf_map_elem *ctx)
{
	return dump_call(ctx, ctx->key, ctx->value, 0, 0);
}

#ifndef LINUX_5_10
SEC("iter/bpf_map_elem")
int dump_spans(struct bpf_iter__bpf_map_elem *ctx)
{
	struct span_row_key *key = ctx->key;
	struct span_row *row = ctx->value;

	return key && row ? dump_call(ctx, &key->row, &row->row, key->span, row->born_boot_ns) : 0;
}
#endif

GADGET_ITER(totals, call_total, dump_totals);
GADGET_ITER_TARGET_MAP(dump_totals, totals_by_call);

SEC("iter/bpf_map_elem")
int dump_totals(struct bpf_iter__bpf_map_elem *ctx)
{
	return dump_total(ctx);
}

DROPS_DATA_SOURCE

char LICENSE[] SEC("license") = "Dual BSD/GPL";
