/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_OPERATIONS_H
#define GPU_GADGETS_NCCL_OPERATIONS_H

#include "call/arguments.h"
#include "call/read.h"
#include "nccl/create.h"
#include "nccl/digest.h"
#include "nccl/waits.h"

/*
 * operations: the operations that a rank issues, alone or in a group. An operation is
 * recorded when its call is entered, so that a rank blocked in the call counts as
 * arrived. It counts as issued when the call returns or, in a group, when the group ends.
 */
#define NCCL_API_SLOTS 128
#ifdef LINUX_5_10
#define NCCL_STACK_BYTES 16
#else
#define NCCL_STACK_BYTES 24 /* of ncclAllToAllv */
#endif
_Static_assert(NCCL_API_COUNT <= NCCL_API_SLOTS, "the next power of two, please");

static const struct nccl_api nccl_apis[NCCL_API_SLOTS] = {
#define X(symbol, op, comm, count, type, reduction, peer, stream) \
	[API_nccl##symbol] = { op, comm, count, type, reduction, peer, stream, 0 },
	NCCL_APIS(X) RCCL_APIS(X)
#undef X
#define X(symbol, op, a, b, per_thread) \
	[API_##symbol] = { op, a, b, NCCL_NO, NCCL_NO, NCCL_NO, NCCL_NO, per_thread },
		NCCL_CUDA_APIS(X) RCCL_HIP_PROBED_APIS(X) RCCL_HIP_DEMAND_APIS(X)
#undef X
};

/* The row of an API; one with NCCL_OP_NONE for an id that is none. */
static __always_inline const struct nccl_api *nccl_api_of(__u64 id)
{
	asm volatile("%0 &= %1" : "+r"(id) : "i"(NCCL_API_SLOTS - 1));
	return &nccl_apis[id];
}

/* Whether a call is FACT_DEVICE's. */
static __always_inline bool nccl_answers_device(__u32 id)
{
#ifndef LINUX_5_10
	if (id == API_hipGetDevice)
		return true;
#endif
	return id == API_cuCtxGetDevice;
}

/* ncclResult_t: the call, or in a communicator that does not block its work, continues. */
#define NCCL_SUCCESS 0
#define NCCL_IN_PROGRESS 7
/* CUresult of a query: CUDA_ERROR_NOT_READY */
#define CUDA_NOT_READY 600

static __always_inline bool nccl_failed(__u32 result)
{
	return result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS;
}

struct nccl_arguments {
	__u64 value[16]; /* the first eight or nine; NCCL_NO and others: 0 */
};

static __always_inline void nccl_arguments(struct pt_regs *ctx, struct nccl_arguments *args,
					   bool all)
{
	__builtin_memset(args, 0, sizeof(*args));
	arguments_in_registers(ctx, args->value, 0, REGISTER_ARGUMENTS);
#if defined(__TARGET_ARCH_x86)
	if (all && bpf_probe_read_user(&args->value[REGISTER_ARGUMENTS], NCCL_STACK_BYTES,
				       (void *)STACK_ARGUMENTS_AT(ctx)))
		drop(DROP_READ_ARGUMENT);
#endif
}

static __always_inline bool nccl_is_operation(__u32 op)
{
	return op >= NCCL_OP_ALL_REDUCE && op <= NCCL_OP_RECV;
}

/* The group that the thread is in; depth 0: none. */
static __always_inline struct nccl_group *nccl_group_of(struct thread *t)
{
	if (t->call.group_process != t->process) {
		t->call.group_process = t->process;
		t->call.group.depth = 0;
	}
	return &t->call.group;
}

/* An operation is in a group: its communicator is updated when that ends. */
static __always_inline void group_note(struct nccl_group *g, struct communicator *c, __u64 handle)
{
	__u32 n = g->communicators;

	if (c->group == g->serial)
		return;
	c->group = g->serial;
	c->group_peers = 0;
	c->group_digest = c->digest;
	__builtin_memset(c->group_by_op, 0, sizeof(c->group_by_op));
	barrier_var(n);
	if (n < NCCL_GROUP_COMMUNICATORS) {
		g->communicator[n] = handle;
		g->communicators = n + 1;
	} else {
		drop(DROP_COMMUNICATORS_FULL);
	}
}

/* The first collective that is not known to be done stays when a newer one takes its slot, at `now`. */
static __always_inline void operation_kept(struct communicator *c, const struct nccl_operation *o,
					   __u64 now)
{
	struct nccl_operation *oldest = &c->oldest;

	if (o->op == NCCL_OP_SEND || o->op == NCCL_OP_RECV ||
	    o->flags & (NCCL_DONE | NCCL_FAILED | NCCL_CAPTURED) ||
	    o->match <= c->completed_collectives ||
	    (oldest->seq && oldest->match > c->completed_collectives))
		return;
	oldest->seq = 0; /* readers skip it meanwhile */
	barrier();
	__builtin_memcpy(&oldest->match, &o->match, sizeof(*o) - sizeof(o->seq));
	if (!oldest->return_boot_ns)
		oldest->return_boot_ns = now; /* its call does not find it any more */
	barrier();
	oldest->seq = o->seq;
}

/*
 * A slot of the ring is used again. If its operation waits for the end of the same group, its
 * event is now: there may be more operations in a group than in the ring.
 */
static __always_inline void operation_replaced(struct thread *t, __u64 handle,
					       struct communicator *c, struct nccl_operation *o)
{
	if (!o->seq)
		return;
	if (o->group && o->group == c->group && !o->return_boot_ns) {
		o->return_boot_ns = t->call.enter_boot_ns;
		operation_event(t->process, handle, NCCL_EVENT_ISSUED, o->seq);
	}
	operation_kept(c, o, t->call.enter_boot_ns);
}

/* Entry of an operation. The stack pointer is set by the caller. */
static __noinline int operation_enter(struct thread *t, const struct nccl_arguments *args)
{
	const struct nccl_api *api;
	struct nccl_operation *o;
	struct nccl_group *group;
	struct communicator *c;
	__u64 handle, seq;

	if (!t || !args)
		return 0;
	api = nccl_api_of(t->call.api);
	handle = t->call.communicator;
	c = communicator_learn(t->process, handle);
	if (!c)
		return 0;
	seq = ++c->seq;
	o = ring_slot(c, seq);
	operation_replaced(t, handle, c, o);
	o->seq = 0; /* readers skip it meanwhile */
	o->op = api->op;
	o->op_seq = ++c->by_op[api->op & 15];
	o->type = args->value[api->type & 15];
	o->reduction = args->value[api->reduction & 15];
	o->count = args->value[api->count & 15];
	o->peer = api->peer == NCCL_NO ? -1 : (__s32)args->value[api->peer & 15];
	o->stream = t->call.stream;
	o->enter_boot_ns = t->call.enter_boot_ns;
	o->return_boot_ns = o->done_boot_ns = o->stack = 0;
	o->tid = bpf_get_current_pid_tgid();
	o->flags = stream_captured(t->process, o->stream) ? NCCL_CAPTURED : 0;
	o->group = 0;
	group = nccl_group_of(t);
	if (group->depth) {
		o->flags |= NCCL_GROUPED;
		o->group = group->serial;
		group_note(group, c, handle);
		c->group_by_op[api->op & 15]++;
	}
	if (api->op == NCCL_OP_SEND || api->op == NCCL_OP_RECV)
		o->match = peer_count(t->process, handle, c, o);
	else
		o->match = collective_number(c, o);
	o->seq = seq;
	t->call.seq = seq;
	return 0;
}

/* An operation that NCCL refused does not count: its numbers are reused. */
static __noinline int operation_refused(struct thread *t, struct communicator *c,
					struct nccl_operation *o, __u32 result)
{
	struct peer *p;

	if (!t || !c || !o)
		return 0;
	c->failed++;
	c->error = result;
	o->flags |= NCCL_FAILED;
	if (c->seq == o->seq)
		c->seq--;
	c->by_op[o->op & 15]--;
	if (o->group && o->group == c->group)
		c->group_by_op[o->op & 15]--;
	if (o->op != NCCL_OP_SEND && o->op != NCCL_OP_RECV) {
		c->collectives--;
		c->digest = c->digest_before;
		return 0;
	}
	p = peer_find(t->process, c, o);
	if (p && p->issued)
		p->issued--;
	return 0;
}

/* c is NULL for calls without a communicator. */
static __always_inline void operation_add(__u64 process, __u64 handle, struct communicator *c,
					  __u8 op, __u8 type, __u64 bytes, __u64 enqueue_ns)
{
	struct operation_key key = {
		.process = process, .serial = c ? c->serial : 0, .op = op, .type = type
	};
	struct operation_row *row;

	key.size_class = size_class_of(bytes);
	if (!c && !process_remember_current(process))
		return;
	row = operation_row_of(&key, handle, c ? c->identity : 0);
	if (!row)
		return;
	__sync_fetch_and_add(&row->calls, 1);
	/* Adding a constant 0 becomes an atomic OR, which came with 5.12. */
	if (bytes)
		__sync_fetch_and_add(&row->bytes, bytes);
	__sync_fetch_and_add(&row->enqueue_ns, enqueue_ns);
}

/* The call of an operation has returned. */
static __noinline int operation_leave(struct thread *t, __u32 result, __u64 stack)
{
	struct communicator *c;
	struct nccl_operation *o;
	__u64 now;

	if (!t || !t->call.seq)
		return 0;
	c = communicator_find(t->process, t->call.communicator);
	if (!c)
		return 0;
	o = ring_slot(c, t->call.seq);
	if (o->seq != t->call.seq)
		return 0; /* overwritten by newer operations */
	now = bpf_ktime_get_boot_ns();
	o->stack = stack;
	if (nccl_failed(result)) {
		o->return_boot_ns = now;
		operation_event(t->process, t->call.communicator, NCCL_EVENT_FAILED, t->call.seq);
		operation_refused(t, c, o, result);
		return 0;
	}
	stream_issue(t, o->stream, t->call.communicator);
	operation_add(t->process, t->call.communicator, c, o->op, o->type,
		      nccl_bytes(o->type, o->count), now - o->enter_boot_ns);
	if (o->flags & NCCL_GROUPED)
		return 0;
	o->return_boot_ns = now;
	if (o->op == NCCL_OP_SEND || o->op == NCCL_OP_RECV)
		peer_returned(t->process, c, o, now);
	operation_event(t->process, t->call.communicator, NCCL_EVENT_ISSUED, t->call.seq);
	return 0;
}

/*
 * NCCL has not launched a communicator's newest group: its operations do not count, and their
 * numbers are reused. They may be more than the ring has.
 */
static __noinline int group_cancel(struct communicator *c)
{
	__u32 n;

	if (!c)
		return 0;
	for (int op = 0; op < 16; op++) {
		n = c->group_by_op[op];
		c->by_op[op] -= n;
		c->seq -= n;
		if (op != NCCL_OP_SEND && op != NCCL_OP_RECV)
			c->collectives -= n;
	}
	c->digest = c->group_digest;
	return 0;
}

/* A group has ended: its operations on one communicator are issued, or do not count. */
__noinline int group_ends(__u64 process, __u64 handle, __u64 serial, __u32 result, __u32 launched)
{
	struct communicator *c = communicator_find(process, handle);
	__u64 now = bpf_ktime_get_boot_ns();

	if (!c)
		return 0;
	if (nccl_failed(result)) {
		c->failed++;
		c->error = result;
	}
	for (__u64 i = 0; i < NCCL_RING; i++) {
		struct nccl_operation *o = ring_slot(c, i);

		if (!o->seq || o->group != serial || o->return_boot_ns)
			continue;
		o->return_boot_ns = now;
		if (!launched)
			o->flags |= NCCL_FAILED;
		if (nccl_failed(result))
			operation_event(process, handle, NCCL_EVENT_FAILED, o->seq);
		else if (launched)
			operation_event(process, handle, NCCL_EVENT_ISSUED, o->seq);
	}
	if (!launched && c->oldest.group == serial)
		c->oldest.seq = 0;
	if (c->group != serial)
		return 0;
	if (!launched)
		group_cancel(c);
	peers_group_ends(process, handle, launched ? now : 0);
	c->group = 0;
	return 0;
}

#endif
