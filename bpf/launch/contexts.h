/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_CONTEXTS_H
#define GPU_GADGETS_LAUNCH_CONTEXTS_H

#include "launch/inflight.h"

#include "call/read.h"
#include "call/context.h"

/*
 * contexts: the device of a call, which is that of the thread, or of its current context. The
 * functions that change it are attach points in addition to those that have rows. The table of
 * memory/apis.h lists them, too, with the numbers that cuda_alloc uses.
 */
enum context_op {
	CONTEXT_CREATE = 1, /* a: address of the context; b: device; becomes current */
	CONTEXT_RETAIN,	    /* the same, of a device's primary one; does not become current */
	CONTEXT_DESTROY,    /* a: the context */
	CONTEXT_SET,	    /* a: the context, 0 for none */
	CONTEXT_PUSH,	    /* a: the context */
	CONTEXT_POP,
	CONTEXT_DEVICE,	    /* a: address of the current context's device */
	/* Where a thread has a device and needs no context. */
	CONTEXT_DEVICE_SET, /* a: the device */
	CONTEXT_DEVICE_OF,  /* a: the context, whose device it is; 0: none, no change */
};

#define CONTEXT_CALLS(X) CONTEXT_PROBED_CALLS(X) CONTEXT_DEMAND_CALLS(X)

/* API_cuCtxSetCurrent …: numbers and attach cookies, after those of calls with rows. */
enum context_api_id {
	CONTEXT_API_BEFORE = CALL_API_COUNT - 1,
#define X(symbol, op, a, b) API_##symbol,
	CONTEXT_CALLS(X)
#undef X
	CONTEXT_API_COUNT,
};

/*
 * CUDA ordinal of the current context's device, -1: unknown. Rows store it in a byte;
 * NVIDIA's driver supports at most 64 devices.
 */
static __always_inline __s32 launch_device(struct thread *t)
{
	__s32 device;

	context_needed(t, &device);
	return device >= 0 && device < 128 ? device : -1;
}

/*
 * As launch_device(), for the context that a call names. That of an unknown context is unknown, but
 * where the thread's own is unknown, too, the two are taken for the same one.
 */
static __always_inline __s32 launch_device_of(struct thread *t, __u64 context)
{
	__s32 device = launch_device(t), named, current;
	__u64 handle = context_current(t, &current);

	if (!context || context == handle)
		return device;
	named = context_device(t->process, context);
	if (named < 0 && !handle)
		return device;
	return named < 128 ? named : -1;
}

/* Constants, as table_has_op(). */
static __always_inline bool table_has_context_op(enum context_op wanted)
{
#define X(symbol, op, a, b) || (op) == wanted
	return false CONTEXT_CALLS(X);
#undef X
}

/* A call of the table above succeeded; `a` and `b` are its arguments. */
static __always_inline void context_returned(struct thread *t, __u32 op, __u64 a, __u64 b,
					     bool may_sleep)
{
	__u64 handle = 0;

	switch (op) {
	case CONTEXT_CREATE:
	case CONTEXT_RETAIN:
		if (!call_read(&handle, 8, a, may_sleep))
			break;
		context_learn(t->process, handle, b);
		if (op == CONTEXT_CREATE)
			context_push(t, handle);
		break;
	case CONTEXT_DESTROY:
		context_destroyed(t, a);
		break;
	case CONTEXT_SET:
		context_set(t, a);
		break;
	case CONTEXT_PUSH:
		context_push(t, a);
		break;
	case CONTEXT_POP:
		context_pop(t);
		break;
	case CONTEXT_DEVICE_SET:
		if (table_has_context_op(CONTEXT_DEVICE_SET))
			t->device_hint = a;
		break;
	case CONTEXT_DEVICE_OF:
		if (table_has_context_op(CONTEXT_DEVICE_OF) && a)
			t->device_hint = context_device(t->process, a);
		break;
	}
}

#endif
