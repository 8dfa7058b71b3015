/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_CALLS_H
#define GPU_GADGETS_LAUNCH_CALLS_H

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

/* The row of an API; one with CALL_OP_NONE for an id that is none. See cuda_api_of(). */
static __always_inline const struct call_api *call_api_of(__u64 id)
{
	asm volatile("%0 &= %1" : "+r"(id) : "i"(CALL_API_SLOTS - 1));
	return &call_apis[id];
}

static __always_inline __u64 call_argument(const struct inflight *call, __u32 index)
{
	return call->argument[index & (CALL_ARGUMENTS - 1)];
}

/* libbpf has the first five before its version 1.2. */
#if defined(__TARGET_ARCH_x86)
#define CALL_PARM6(ctx) ((ctx)->r9)
#else
#define CALL_PARM6(ctx) (((const struct user_pt_regs *)(ctx))->regs[5])
#define CALL_PARM7(ctx) (((const struct user_pt_regs *)(ctx))->regs[6])
#define CALL_PARM8(ctx) (((const struct user_pt_regs *)(ctx))->regs[7])
#endif

static __always_inline void call_arguments(struct pt_regs *ctx, struct inflight *call, __u8 op)
{
#if defined(__TARGET_ARCH_x86)
	__u64 words[3];

#endif
	call->argument[0] = PT_REGS_PARM1(ctx);
	call->argument[1] = PT_REGS_PARM2(ctx);
	call->argument[2] = PT_REGS_PARM3(ctx);
	call->argument[3] = PT_REGS_PARM4(ctx);
	call->argument[4] = PT_REGS_PARM5(ctx);
	call->argument[5] = CALL_PARM6(ctx);
	if (op != CALL_LAUNCH)
		return;
	/* cuLaunchKernel has nine arguments of interest. Those that are not in registers
	 * lie above the return address (x86-64) or at the top of the stack (arm64). */
#if defined(__TARGET_ARCH_x86)
	if (bpf_probe_read_user(words, sizeof(words), (void *)(PT_REGS_SP(ctx) + 8)))
		drop(DROP_READ_ARGUMENT);
	/* Through the stack: see user_read_words(). */
	for (int i = 0; i < 3; i++)
		call->argument[6 + i] = words[i];
#else
	call->argument[6] = CALL_PARM7(ctx);
	call->argument[7] = CALL_PARM8(ctx);
	if (bpf_probe_read_user(&call->argument[8], 8, (void *)PT_REGS_SP(ctx)))
		drop(DROP_READ_ARGUMENT);
#endif
}

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
 * Forgets calls of an earlier window that returned after the probes had been detached. A
 * call that is entered now is not nested in any of them.
 */
static __always_inline void call_left_behind(struct thread *t, const struct window *w, __u64 sp)
{
	struct inflight *call = &t->call;
	struct library_call *library = &call->library;

	if (!budget_ppm)
		return;
	if (call->sp && call->window.weight > 1 && call->window.number != w->number &&
	    sp >= call->sp) {
		drop(DROP_INFLIGHT_STALE);
		call->sp = 0;
	}
	if (library->sp && library->window.weight > 1 && library->window.number != w->number &&
	    sp >= library->sp) {
		drop(DROP_INFLIGHT_STALE);
		library->sp = 0;
	}
}

/* Entry of API `id`. Runs in programs that may not sleep. */
static __always_inline void call_enter(struct pt_regs *ctx, struct thread *t, __u32 id)
{
	const struct call_api *api = call_api_of(id);
	__u64 sp = PT_REGS_SP(ctx), first, second;
	struct inflight *call;
	struct window w;

	if (!api->op)
		return;
	w = window_of(id);
	if (t)
		call_left_behind(t, &w, sp);
	if (!w.weight)
		return;
	if (!t)
		t = thread_current(process_id_of(task_current()), true);
	if (!t) {
		drop(DROP_SCRATCH);
		return;
	}
	if (id == API_cuCtxGetDevice) {
		context_ask(ctx, t);
		return;
	}
	t->device_sp = 0;
	call = &t->call;
	if (api->op == CALL_LIBRARY) {
		library_enter(ctx, t, id, &w);
		return;
	}
	if (api->op == CALL_STUB) {
		/* Both are read, because the verifier rejects a variable offset into the
		 * context. */
		first = PT_REGS_PARM1(ctx);
		second = PT_REGS_PARM2(ctx);
		barrier_var(first);
		barrier_var(second);
		call->stub = api->a ? second : first;
		call->stub_sp = sp;
		if (budget_ppm)
			call->stub_window = window_of(API_cuLaunchKernel).number;
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
	call_arguments(ctx, call, api->op);
	call->start_boot_ns = bpf_ktime_get_boot_ns();
}

/* CUmemorytype: host 1, device 2, array 3, unified 4. */
static __always_inline __u32 copy_direction(__u32 from, __u32 to)
{
	if (from < 1 || from > 3 || to < 1 || to > 3)
		return COPY_ANY;
	if (from == 1)
		return to == 1 ? COPY_HTOH : COPY_HTOD;
	return to == 1 ? COPY_DTOH : COPY_DTOD;
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

/* CUDA_MEMCPY3D and its _PEER: types at 32 and 120, width, height and depth at 176. */
static __always_inline void facts_copy_3d(struct call_facts *f, __u64 at, __u32 direction,
					  bool may_sleep)
{
	__u64 extent[3];
	__u32 from, to;

	if (!call_read(&from, 4, at + 32, may_sleep) || !call_read(&to, 4, at + 120, may_sleep) ||
	    !call_read(extent, sizeof(extent), at + 176, may_sleep))
		return;
	f->direction = direction ?: copy_direction(from, to);
	f->bytes = extent[0] * extent[1] * extent[2];
}

/* CUlaunchConfig: grid, block and shared memory, the stream at 32. */
static __always_inline void facts_launch_ex(struct call_facts *f, __u64 config, bool may_sleep)
{
	__u64 words[5];

	if (!call_read(words, sizeof(words), config, may_sleep))
		return;
	__builtin_memcpy(&f->shape, words, 28);
	f->shape.launches = 1;
	f->stream = words[4];
}

/* CUDA_LAUNCH_PARAMS: the function, grid, block and shared memory, the stream at 40. All
 * of them have the same kernel and shape. */
static __always_inline void facts_launch_multi(struct call_facts *f, __u64 first, __u32 count,
					       bool may_sleep)
{
	__u64 words[6];

	if (!call_read(words, sizeof(words), first, may_sleep))
		return;
	f->function = words[0];
	__builtin_memcpy(&f->shape, &words[1], 28);
	f->shape.launches = count;
	f->stream = words[5];
}

/*
 * Fills t->call.facts for the call that has just returned with `result`, and stores what
 * later calls need. 0: the call has no row.
 */
static __noinline int call_describe(struct thread *t, __u32 result, bool may_sleep)
{
	const struct call_api *api;
	struct inflight *call;
	struct call_facts *f;
	__u64 a, b, word = 0, *known;
	__u8 op;

	if (!t)
		return 0;
	call = &t->call;
	f = &call->facts;
	api = call_api_of(call->api);
	op = api->op;
	a = call_argument(call, api->a);
	b = call_argument(call, api->b);
	if (op == CALL_CONTEXT) {
		if (!result)
			context_returned(t, api->detail, a, b, may_sleep);
		return 0;
	}
	__builtin_memset(f, 0, sizeof(*f));
	f->device = launch_device(t);
	f->stream = b;

	switch (op) {
	case CALL_LAUNCH:
		f->function = a;
		for (int i = 0; i < 3; i++) {
			f->shape.grid[i] = call->argument[1 + i];
			f->shape.block[i] = call->argument[4 + i];
		}
		f->shape.shared_bytes = call->argument[7];
		f->shape.launches = 1;
		break;
	case CALL_LAUNCH_EX:
		f->function = a;
		facts_launch_ex(f, b, may_sleep);
		break;
	case CALL_LAUNCH_MULTI:
		facts_launch_multi(f, a, b, may_sleep);
		f->device = -1; /* several */
		break;
	case CALL_GRAPH:
		known = stream_fact(t->process, a, EXEC_NODES);
		f->nodes = known && !result ? *known : 0;
		break;
	case CALL_HOST:
		f->function = FUNCTION_STUB | (a & FUNCTION_BITS);
		break;
	case CALL_COPY:
		f->direction = api->detail;
		f->bytes = a;
		break;
	case CALL_COPY_2D:
		facts_copy_2d(f, a, may_sleep);
		break;
	case CALL_COPY_3D:
		facts_copy_3d(f, a, api->detail, may_sleep);
		break;
	case CALL_PREFETCH:
		/* CU_DEVICE_CPU is -1 */
		f->direction = (__s32)call->argument[2] < 0 ? COPY_DTOH : COPY_HTOD;
		f->bytes = a;
		break;
	case CALL_SET:
		f->bytes = a * api->detail;
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
	if (api->flags & CALL_OF_EVENT) {
		known = stream_fact(t->process, a, EVENT_STREAM);
		f->stream = known ? *known : 0;
	} else if (!f->stream && (op < CALL_WAIT || (op < CALL_LOAD && api->b != CALL_NONE))) {
		f->stream = api->flags & CALL_PER_THREAD ? 2 : 1;
	}
	/* The runtime may make other calls first, to load the module. A stub from another
	 * window belongs to a launch that was not followed. */
	if (call->stub_sp <= call->sp || (budget_ppm && call->stub_window != call->window.number))
		call->stub_sp = 0;
	if (op >= CALL_LAUNCH && op <= CALL_LAUNCH_MULTI) {
		f->function = function_launched(t->process, f->function,
						call->stub_sp ? call->stub : 0);
		call->stub_sp = 0;
	}
	if (result)
		return 1;

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
		capture_begin(t->process, f->stream);
		break;
	case CALL_CAPTURED:
		if (call_read(&word, 8, a, may_sleep))
			capture_end(t->process, f->stream, word);
		break;
	case CALL_NODE:
		graph_node(t->process, b);
		break;
	case CALL_INSTANTIATE:
		known = stream_fact(t->process, b, GRAPH_NODES);
		if (known && call_read(&word, 8, a, may_sleep))
			stream_learn(t->process, word, EXEC_NODES, *known);
		break;
	default:
		if (op > CALL_SET_2D)
			break;
		known = stream_captured(t->process, f->stream);
		if (known) {
			__sync_fetch_and_add(known, 1);
			f->captured = 1;
		}
		break;
	}
	return 1;
}

#endif
