/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_INTERPOSED_H
#define GPU_GADGETS_MEMORY_INTERPOSED_H

#include "call/attach_point.h"
#include "memory/inflight.h"

#include "call/probes.h"
#include "call/thread.h"

/*
 * interposed: libraries that limit a process's memory, between it and the driver
 * (INTERPOSERS). Only the driver's calls are counted: a call that such a library hands
 * on is one call, and what the library makes of it, managed memory for example, is what the
 * row has. Of the library's own functions only those matter that return an error although no
 * call to the driver inside them did: these are refusals of the library.
 */

/* Who refused an allocation, as users read it. */
#define REFUSER_BYTES 24
#define REFUSERS 8 /* a power of two, for the mask */
static const char refusers[REFUSERS][REFUSER_BYTES] = { [0] = "driver",
#ifdef INTERPOSERS_PROBED
#define X(number, library) [number] = library ".so",
							INTERPOSERS(X)
#undef X
#endif
};

static __always_inline void refuser_name(char *to, __u32 library)
{
	bpf_probe_read_kernel_str(to, REFUSER_BYTES, refusers[library & (REFUSERS - 1)]);
}

#ifndef INTERPOSERS_PROBED
static __always_inline bool interposed_refused(struct thread *t, __u64 sp, __u32 result)
{
	return false;
}

static __always_inline __u32 interposed_refuser(struct thread *t)
{
	return 0;
}
#else
#define X(symbol, number, library) \
	{ library, #symbol, INTERPOSED(number, API_##symbol), ATTACH_EXIT | ATTACH_BESIDE },
#define Y(number, library) INTERPOSED_APIS(X, number, library)
const struct attach_point interposed_attach_points[] ATTACH_POINTS = { INTERPOSERS(Y) };
#undef X
#undef Y

/* The thread enters a function of a library; `id` is the cookie. */
static __noinline int interposed_enter(struct pt_regs *ctx, struct thread *t, __u32 id)
{
	const struct memory_api *api = memory_api_of(id);
	struct call_arguments args;
	struct interposed *i;
	__u64 sp;

	if (!ctx || !t)
		return 0;
	i = &t->call.interposed;
	sp = PT_REGS_SP(ctx);
	if ((t->call.sp && sp < t->call.sp) || (i->sp && sp < i->sp))
		return 0; /* nested: in a call of the driver, or of the library */
	call_arguments(ctx, &args);
	i->sp = sp;
	i->ip = PT_REGS_IP(ctx);
	i->a = args.value[api->a & 7];
	i->b = args.value[api->b & 7];
	i->c = args.value[api->c & 7];
	i->serial = serial_of(bpf_ktime_get_boot_ns());
	i->api = (__u8)id;
	i->library = id >> 8;
	i->failed = 0;
	return 0;
}

/*
 * A function has returned, in a thread that is in no call of the driver. Whether it is one
 * of a library that has refused: it is then the thread's call, for oom_report().
 */
static __noinline bool interposed_refused(struct thread *t, __u64 sp, __u32 result)
{
	struct interposed *i;

	if (!t)
		return false;
	i = &t->call.interposed;
	if (!i->sp || sp < RETURNED_SP(i->sp))
		return false; /* none, or a nested one */
	if (sp > RETURNED_SP(i->sp) || !result || i->failed) {
		i->sp = 0;
		return false;
	}
	t->call.ip = i->ip;
	t->call.a = i->a;
	t->call.b = i->b;
	t->call.c = i->c;
	t->call.serial = i->serial;
	t->call.api = i->api;
	t->call.popped = 0;
	i->refused = i->library;
	i->sp = 0;
	return true;
}

/* Who refused the thread's call. The driver: the library around it did not. */
static __always_inline __u32 interposed_refuser(struct thread *t)
{
	__u32 library = t->call.interposed.refused;

	t->call.interposed.refused = 0;
	t->call.interposed.failed = !library;
	return library;
}
#endif

#endif
