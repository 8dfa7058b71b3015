/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_ENTER_H
#define GPU_GADGETS_MEMORY_ENTER_H

#include "memory/inflight.h"

#include "call/arguments.h"
#include "call/read.h"
#include "call/context.h"
#include "memory/live.h"
#include "memory/vmm.h"

/*
 * enter: the entry of a driver call, and the table of the calls that are followed. The
 * outermost call of a thread owns what it does: calls that the driver makes to
 * its own exports are nested and not counted again.
 */
#define MEMORY_API_SLOTS 64
_Static_assert(MEMORY_API_COUNT <= MEMORY_API_SLOTS, "the next power of two, please");

static const struct memory_api memory_apis[MEMORY_API_SLOTS] = {
#define X(symbol, op, kind, flags, a, b, c) [API_##symbol] = { op, kind, flags, a, b, c },
	MEMORY_APIS(X)
#undef X
};

/*
 * The row of an API; one with MEMORY_OP_NONE for an id that is none. The mask is
 * in assembly because the compiler would drop it where it knows better than the
 * verifier.
 */
static __always_inline const struct memory_api *memory_api_of(__u64 id)
{
	asm volatile("%0 &= %1" : "+r"(id) : "i"(MEMORY_API_SLOTS - 1));
	return &memory_apis[id];
}

/*
 * Whether a row of the vendor's table has this op, or this flag. Constants where they are: a
 * vendor's programs have no code for what its table does not need.
 */
static __always_inline bool table_has_op(enum memory_op wanted)
{
#define X(symbol, op, kind, flags, a, b, c) || (op) == wanted
	return false MEMORY_APIS(X);
#undef X
}

static __always_inline bool table_has_flag(__u8 wanted)
{
#define X(symbol, op, kind, flags, a, b, c) || ((flags) & wanted)
	return false MEMORY_APIS(X);
#undef X
}

static __always_inline bool is_op(const struct memory_api *api, enum memory_op op)
{
	return table_has_op(op) && api->op == op;
}

static __always_inline bool has_flag(const struct memory_api *api, __u8 flag)
{
	return table_has_flag(flag) && api->flags & flag;
}

struct call_arguments {
	__u64 value[8]; /* the first five; a power of two for the mask */
};

static __always_inline void call_arguments(struct pt_regs *ctx, struct call_arguments *args)
{
	__builtin_memset(args, 0, sizeof(*args));
	arguments_in_registers(ctx, args->value, 0, 5);
}

#include "memory/extent.h"
#include "memory/interposed.h"
#include "memory/reset.h"

/* The context that a call is about to destroy; 0: none, or not known. */
static __always_inline __u64 call_dooms(struct thread *t, const struct memory_api *api,
					struct inflight *call, __u64 process)
{
	struct primary *p;
	__s32 device;

	if (is_op(api, MEMORY_DEVICE_RESET)) {
		context_needed(t, &device);
		return device_owner(device);
	}
	switch (api->op) {
	case MEMORY_CTX_DESTROY:
		return call->a;
	case MEMORY_PRIMARY_RESET:
		p = primary_of(process, call->a);
		return p ? p->handle : 0;
	case MEMORY_PRIMARY_RELEASE:
		p = primary_of(process, call->a);
		return p && p->references == 1 ? p->handle : 0;
	default:
		return 0;
	}
}

/*
 * Dooms, frees or clears what the end of t->call.c owns; of a primary context also what is owned by its
 * device, context_owner().
 */
static __always_inline void call_doom(struct thread *t, const struct memory_api *api,
				      enum doom_step step)
{
	struct inflight *call = &t->call;
	__u64 device = 0;

	if (call->c)
		live_doom(t->process, call->c, 1, call->serial, step);
	if (is_op(api, MEMORY_PRIMARY_RESET) || (is_op(api, MEMORY_PRIMARY_RELEASE) && call->c))
		device = device_owner(call->a);
	if (device)
		live_doom(t->process, device, 1, mix64(call->serial), step);
}

static __always_inline void call_live_key(struct live_key *key, const struct memory_api *api,
					  __u64 process, __u64 pointer)
{
	key->process = process;
	key->pointer = api->flags & MEMORY_ABI1 ? (__u32)pointer : pointer;
	key->space = live_space_of(api);
	key->pad = 0;
}

/* The pointer or handle that a call frees. */
static __always_inline __u64 call_freed(const struct memory_api *api, const struct inflight *call)
{
	return api->kind == KIND_CONTEXT ? call->c : call->a;
}

/* A free took its allocation out and did not succeed: put it back. */
static __always_inline void call_undo_free(struct thread *t, const struct memory_api *api)
{
	struct live_key key;

	call_live_key(&key, api, t->process, call_freed(api, &t->call));
	/* It was given when the allocation was taken out. */
	(void)QUOTA_TAKE_OWN(QUOTA_LIVE, LIVE_OWN);
	if (bpf_map_update_elem(&live_by_pointer, &key, &t->call.live, BPF_NOEXIST)) {
		QUOTA_GIVE(QUOTA_LIVE);
		drop(DROP_LIVE_FULL);
	}
	t->call.popped = 0;
}

/* The thread's previous call never returned (longjmp, a C++ exception). */
static __always_inline void call_abandon(struct thread *t)
{
	drop(DROP_INFLIGHT_STALE);
	if (t->call.popped)
		call_undo_free(t, memory_api_of(t->call.api));
}

/* What a call is about to free is taken out, or marked, before the driver does it. */
static __always_inline void call_begins(struct thread *t, const struct memory_api *api)
{
	struct inflight *call = &t->call;
	__u64 process = t->process, a = call->a, doomed;
	struct handle *handle;
	struct live_key key;

	switch (api->op) {
	case MEMORY_FREE:
		call_live_key(&key, api, process, a);
		if (!a)
			break; /* freeing nothing is allowed */
		call->popped = live_pop(&key, &call->live);
		break;
	case MEMORY_PRIMARY_RETAIN:
		call->c = thread_waits();
		break;
	case MEMORY_VMM_RETAIN:
		call->c = vmm_pin(process, call->b);
		break;
	case MEMORY_VMM_RELEASE:
		handle = vmm_handle(process, a);
		call->c = handle ? handle->serial : 0;
		break;
	case MEMORY_CTX_DESTROY:
	case MEMORY_PRIMARY_RESET:
	case MEMORY_PRIMARY_RELEASE:
	case MEMORY_DEVICE_RESET:
		doomed = call_dooms(t, api, call, process);
		call->c = doomed;
		call_doom(t, api, DOOM_MARK);
		if (!doomed)
			break;
		call_live_key(&key, api, process, doomed);
		call->popped = live_pop(&key, &call->live);
		break;
	case MEMORY_ADDRESS_FREE:
		if (MEMORY_HELD)
			live_doom(process, call->a, call->b, call->serial, DOOM_MARK);
		break;
	}
}

/* Entry of API `id`, or of a library's function of that name. Runs in programs that may not sleep. */
static __always_inline void call_enter(struct pt_regs *ctx, struct thread *t, __u32 id)
{
	const struct memory_api *api;
	struct call_arguments args;
	struct inflight *call;
	__u64 sp = PT_REGS_SP(ctx);
	__u64 a;

	api = memory_api_of(id);
	if (!api->op)
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
#ifdef INTERPOSERS_PROBED
	if (id >> 8) {
		interposed_enter(ctx, t, id);
		return;
	}
#endif
	t->device_sp = 0;
	call = &t->call;
	call_arguments(ctx, &args);
	a = args.value[api->a & 7];
	if (call->sp) {
		if (sp < call->sp)
			return; /* nested */
		if (sp == call->sp && id == call->api && a == call->a)
			return; /* one file, probed through two paths */
		call_abandon(t);
	}
	call->sp = sp;
	call->ip = PT_REGS_IP(ctx);
	call->api = id;
	call->a = a;
	call->b = args.value[api->b & 7];
	call->c = args.value[api->c & 7];
	/* Two CPUs may read the same nanosecond: the thread makes it unique. */
	call->serial = serial_of(bpf_ktime_get_boot_ns());
	call->popped = 0;
	if (ROWS_WITH_EXTENTS && MEMORY_EXTENT_AT(api->flags))
		extent_entered(ctx, call, api, &args);

	call_begins(t, api);
}

#endif
