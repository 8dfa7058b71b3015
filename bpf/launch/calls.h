/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_CALLS_H
#define GPU_GADGETS_LAUNCH_CALLS_H

#include "call/error.h"
#include "launch/contexts.h"
#include "launch/names.h"
#include "launch/streams.h"

/*
 * calls: follows a call from its entry to its return and reads its arguments. Only the
 * outermost driver call of a thread counts, not calls that the driver makes to its own
 * exports. It may run inside a call of a library, of which only the outermost counts as
 * well.
 */
#define CALL_API_SLOTS 256
_Static_assert(CONTEXT_API_COUNT <= CALL_API_SLOTS, "the next power of two, please");

static const struct call_api call_apis[CALL_API_SLOTS] = {
#define X(symbol, op, detail, flags, a, b) [API_##symbol] = { op, detail, flags, a, b },
	DRIVER_CALLS(X)
#undef X
#define X(library, symbol, op, a) [API_##symbol] = { op, 0, 0, a, CALL_NONE },
	LIBRARY_CALLS(X)
#undef X
#define X(symbol, op, a, b) [API_##symbol] = { CALL_CONTEXT, op, 0, a, b },
	CONTEXT_CALLS(X)
#undef X
};

/* The row of an API; one with CALL_OP_NONE for an id that is none. See memory_api_of(). */
static __always_inline const struct call_api *call_api_of(__u64 id)
{
	asm volatile("%0 &= %1" : "+r"(id) : "i"(CALL_API_SLOTS - 1));
	return &call_apis[id];
}

static __always_inline __u64 call_argument(const struct inflight *call, __u32 index)
{
	return call->argument[index & (CALL_ARGUMENTS - 1)];
}

#include "launch/arguments.h"

static __always_inline void library_enter(struct pt_regs *ctx, struct thread *t, __u32 id,
					  const struct window *w)
{
	struct library_call *call = &t->call.library;
	__u64 sp = PT_REGS_SP(ctx);

	if (call->process == t->process && call->sp) {
		if (sp <= call->sp)
			return; /* nested; at the same address if the outer one ends in a jump */
		drop(DROP_INFLIGHT_STALE);
	}
	call->process = t->process;
	call->sp = sp;
	call->ip = PT_REGS_IP(ctx);
	call->api = id;
	if (budget_ppm)
		call->window = *w;
	window_count(w, 1);
	call->start_boot_ns = bpf_ktime_get_boot_ns();
}

/*
 * Forgets calls that returned after their probes had been detached: those of an earlier window, or
 * from before their function was followed in windows. A call that is entered now is not nested in
 * any of them.
 */
static __always_inline void call_left_behind(struct thread *t, __u64 sp)
{
	struct inflight *call = &t->call;
	struct library_call *library = &call->library;

	if (!budget_ppm)
		return;
	if (call->sp && sp >= call->sp && window_is_over(&call->window, call->api)) {
		drop(DROP_INFLIGHT_STALE);
		call->sp = 0;
	}
	if (library->sp && sp >= library->sp && window_is_over(&library->window, library->api)) {
		drop(DROP_INFLIGHT_STALE);
		library->sp = 0;
	}
}

/* Entry of API `id`. Runs in programs that may not sleep. */
static __always_inline void call_enter(struct pt_regs *ctx, struct thread *t, __u32 id)
{
	const struct call_api *api = call_api_of(id);
	__u64 sp = PT_REGS_SP(ctx);
	struct inflight *call;
	struct window w;

	if (!api->op)
		return;
	w = window_of(id);
	if (t)
		call_left_behind(t, sp);
	if (!w.weight)
		return;
	if (!t)
		t = thread_current(process_id_of(task_current()), true);
	if (!t) {
		drop(DROP_SCRATCH);
		return;
	}
	if (id == API_DEVICE_ANSWER) {
		context_ask(ctx, t);
		return;
	}
	t->device_sp = 0;
	call = &t->call;
	if (api->op == CALL_LIBRARY) {
		library_enter(ctx, t, id, &w);
		return;
	}
	if (STUBS && api->op == CALL_STUB) {
		stub_entered(ctx, t, api, sp);
		return;
	}
	if (REGISTRATIONS && api->op == CALL_REGISTER) {
		kernel_registered(ctx, t, api);
		return;
	}
	if (call->sp) {
		if (sp < call->sp || (sp == call->sp && id == call->api))
			return; /* as above */
		drop(DROP_INFLIGHT_STALE); /* the earlier one never returned */
	}
	call->sp = sp;
	call->ip = PT_REGS_IP(ctx);
	call->api = id;
	if (budget_ppm)
		call->window = w;
	window_count(&w, 1);
	call_arguments(ctx, call, api);
	call->start_boot_ns = bpf_ktime_get_boot_ns();
}

/* CUDA_MEMCPY2D: types at 16 and 72, width in bytes and height at 112. */
static __always_inline void facts_copy_2d(struct call_facts *f, __u64 at, bool may_sleep)
{
	__u64 extent[2];
	__u32 from, to;

	if (!call_read(&from, 4, at + 16, may_sleep) || !call_read(&to, 4, at + 72, may_sleep) ||
	    !call_read(extent, sizeof(extent), at + 112, may_sleep))
		return;
	f->direction = copy_direction(from, to);
	f->bytes = extent[0] * extent[1];
}

/* CUlaunchConfig, HIP_LAUNCH_CONFIG and hipLaunchConfig_t: grid, block and shared memory, the stream at 32. */
static __always_inline void facts_launch_ex(struct call_facts *f, __u64 config, bool may_sleep)
{
	__u64 words[5];

	if (!call_read(words, sizeof(words), config, may_sleep))
		return;
	__builtin_memcpy(&f->shape, words, 28);
	f->shape.launches = 1;
	f->stream = words[4];
}

/* Where a prefetch moves memory: a device, where CU_DEVICE_CPU is -1, or a location {type, id}. */
static __always_inline __u8 prefetch_direction(__u8 detail, __u64 to)
{
	if (detail == PREFETCH_LOCATION)
		return (__u32)to == LOCATION_DEVICE ? COPY_HTOD : COPY_DTOH;
	return (__s32)to < 0 ? COPY_DTOH : COPY_HTOD;
}

/* What the arguments of a call say of the work; `a` and `b` are those of its row. */
static __always_inline void facts_read(struct thread *t, const struct call_api *api, __u64 a,
				       __u64 b, bool failed, bool may_sleep)
{
	struct inflight *call = &t->call;
	struct call_facts *f = &call->facts;
	__u64 *known;

	switch (api->op) {
	case CALL_LAUNCH:
		f->function = a;
		facts_launch(f, call, api->detail);
		break;
	case CALL_LAUNCH_EX:
		f->function = a;
		facts_launch_ex(f, b, may_sleep);
		break;
	case CALL_LAUNCH_MULTI:
		facts_launch_multi(f, a, b, api->detail, may_sleep);
		f->device = -1; /* several */
		break;
	case CALL_GRAPH:
		known = stream_fact(t->process, a, EXEC_NODES);
		f->nodes = known && !failed ? *known : 0;
		break;
	case CALL_HOST:
		f->function = FUNCTION_STUB | (a & FUNCTION_BITS);
		break;
	case CALL_COPY:
		facts_copy(f, call, api, a);
		break;
	case CALL_COPY_2D:
		facts_copy_2d(f, a, may_sleep);
		break;
	case CALL_COPY_3D:
		facts_copy_3d(f, a, api->detail, may_sleep);
		break;
	case CALL_COPY_BATCH:
		f->direction = COPY_ANY;
		f->bytes = batch_bytes(a, call_argument(call, api->a + 1));
		break;
	case CALL_PREFETCH:
		f->direction = prefetch_direction(api->detail, call->argument[2]);
		f->bytes = a;
		break;
	case CALL_SET:
		facts_set(f, call, api, a);
		break;
	case CALL_SET_2D:
		f->bytes = a * call_argument(call, api->a + 1) * api->detail;
		break;
	case CALL_WAIT:
	case CALL_QUERY:
	case CALL_ORDER:
	case CALL_RECORD:
	case CALL_CAPTURE:
	case CALL_CAPTURED:
		break;
	default:
		f->stream = 0; /* there is none */
		break;
	}
}

/* The stream of an event, or the default one where the call named none. */
static __always_inline void stream_read(struct thread *t, const struct call_api *api, __u64 a)
{
	struct call_facts *f = &t->call.facts;
	__u8 op = api->op;
	__u64 *known;

	if (api->flags & CALL_OF_EVENT) {
		known = stream_fact(t->process, a, EVENT_STREAM);
		f->stream = known ? *known : 0;
	} else if (!f->stream && (op < CALL_WAIT || (op < CALL_LOAD && api->b != CALL_NONE))) {
		f->stream = api->flags & CALL_PER_THREAD ? STREAM_PER_THREAD : 1;
	}
}

/* A call succeeded: stores what later calls need, and whether it became a node of a graph. */
static __always_inline void facts_learn(struct thread *t, __u8 op, __u64 a, __u64 b,
					bool may_sleep)
{
	struct call_facts *f = &t->call.facts;
	__u64 word = 0, capture, *known;

	switch (op) {
	case CALL_NAME:
		if (call_read(&word, 8, a, may_sleep))
			name_learn(t->process, word, b, may_sleep);
		break;
	case CALL_NAME_FROM:
		if (call_read(&word, 8, a, may_sleep))
			function_learn(t->process, word, function_of(t->process, b));
		break;
	case CALL_NAME_OF:
		if (call_read(&word, 8, a, may_sleep))
			name_learn(t->process, b, word, may_sleep);
		break;
	case CALL_RECORD:
		event_recorded(t->process, a, f->stream);
		break;
	case CALL_ORDER:
		capture_join(t->process, f->stream, a);
		break;
	case CALL_CAPTURE:
		capture_begin(t->process, f->stream, a);
		break;
	case CALL_CAPTURED:
		if (call_read(&word, 8, a, may_sleep))
			capture_end(t->process, f->stream, word);
		break;
	case CALL_NODE:
		graph_node(t->process, b);
		break;
	case CALL_NEW_GRAPH:
		if (call_read(&word, 8, a, may_sleep))
			graph_made(t->process, word, GRAPH_NODES, b);
		break;
	case CALL_INSTANTIATE:
		if (call_read(&word, 8, a, may_sleep))
			graph_made(t->process, word, EXEC_NODES, b);
		break;
	default:
		if (op > CALL_SET_2D)
			break;
		known = stream_captured(t->process, f->stream, &capture);
		if (known) {
			__sync_fetch_and_add(known, 1);
			f->captured = 1;
		}
		break;
	}
}

/* Whether the call that has just returned is about contexts, and has no row. */
static __always_inline bool call_is_of_contexts(const struct inflight *call)
{
	return call_api_of(call->api)->op == CALL_CONTEXT;
}

/* Such a call succeeded. Returns 0. Not in call_describe(), which needs more stack. */
static __noinline int call_of_contexts(struct thread *t, bool may_sleep)
{
	const struct call_api *api;

	if (!t)
		return 0;
	api = call_api_of(t->call.api);
	context_returned(t, api->detail, call_argument(&t->call, api->a),
			 call_argument(&t->call, api->b), may_sleep);
	return 0;
}

/* Whether a call has ended a capture that becomes no graph. Other errors leave the capture as it is. */
static __always_inline bool capture_is_lost(__u8 op, __u32 result)
{
	return op == CALL_CAPTURED &&
	       (result == ERROR_CAPTURE_INVALIDATED || result == ERROR_CAPTURE_UNJOINED);
}

/*
 * Fills t->call.facts for the call that has just returned with `result`, and stores what
 * later calls need.
 */
static __noinline int call_describe(struct thread *t, __u32 result, bool may_sleep)
{
	const struct call_api *api;
	struct inflight *call;
	struct call_facts *f;
	__u64 a, b;
	__u8 op;

	if (!t)
		return 0;
	call = &t->call;
	f = &call->facts;
	api = call_api_of(call->api);
	op = api->op;
	a = call_argument(call, api->a);
	b = call_argument(call, api->b);
	__builtin_memset(f, 0, sizeof(*f));
	f->device = CALLS_OF_CONTEXTS && api->flags & CALL_OF_CONTEXT ? launch_device_of(t, a)
								     : launch_device(t);
	f->stream = b;
	facts_read(t, api, a, b, result != 0, may_sleep);
	stream_read(t, api, a);
	/* The runtime may make other calls first, to load the module. A stub from another
	 * window belongs to a launch that was not followed. */
	if (call->stub_sp <= call->sp || (budget_ppm && call->stub_window != call->window.number))
		call->stub_sp = 0;
	if (op >= CALL_LAUNCH && op <= CALL_LAUNCH_MULTI) {
		f->function = call_function(t, api, may_sleep);
		call->stub_sp = 0;
	}
	if (!result)
		facts_learn(t, op, a, b, may_sleep);
	else if (capture_is_lost(op, result))
		capture_end(t->process, f->stream, 0);
	return 0;
}

#endif
