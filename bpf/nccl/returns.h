/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_RETURNS_H
#define GPU_GADGETS_NCCL_RETURNS_H

#include "nccl/calls.h"

/*
 * returns: the return of a call of NCCL that is not an operation, or of one of the driver: what
 * became of a communicator or a group, and what is done.
 */

/* A call that makes a communicator has returned. */
static __always_inline void created_returned(struct thread *t, __u32 result, bool may_sleep)
{
	struct nccl_group *group = nccl_group_of(t);
	struct nccl_created *created = &t->call.created;
	__u64 handle = 0;
	__u32 n;

	if (group->depth) {
		n = group->created_count;
		barrier_var(n);
		if (n < NCCL_GROUP_CREATED) {
			group->created[n] = *created;
			group->created_count = n + 1;
		} else {
			drop(DROP_COMMUNICATORS_FULL);
		}
		return;
	}
	call_read(&handle, 8, created->address, may_sleep);
	if (handle)
		create_done(t, created, handle);
	else if (result == NCCL_IN_PROGRESS)
		t->call.pending = *created; /* a non-blocking split */
}

/* The outermost group has ended. */
static __noinline int group_ended(struct thread *t, __u32 result, bool may_sleep)
{
	struct nccl_group *group;
	bool simulates, launched;

	if (!t)
		return 0;
	group = &t->call.group;
	/* Without an argument it is GroupEnd; so it is for communicators that do not block. A group
	 * that fails, as one in which NCCL has refused a call does, is cancelled. */
	simulates = nccl_api_of(t->call.api)->op == NCCL_GROUP_SIMULATE_END;
	launched = !nccl_failed(result) && (!simulates || !t->call.a || result == NCCL_IN_PROGRESS);
	for (int i = 0; i < NCCL_GROUP_COMMUNICATORS; i++) {
		if (i >= group->communicators)
			break;
		group_ends(t->process, group->communicator[i], group->serial, result, launched);
	}
	for (int i = 0; i < NCCL_GROUP_CREATED; i++) {
		__u64 handle = 0;

		if (i >= group->created_count || nccl_failed(result))
			break;
		call_read(&handle, 8, group->created[i].address, may_sleep);
		create_done(t, &group->created[i], handle);
	}
	group->communicators = group->created_count = 0;
	if (simulates)
		return 0;
	operation_add(t->process, 0, 0, NCCL_OP_GROUP_END, 0, 0,
		      bpf_ktime_get_boot_ns() - t->call.enter_boot_ns);
	return 0;
}

/* ncclCommInitAll has returned. */
static __noinline int all_created(struct thread *t, bool may_sleep)
{
	__u64 identity;
	__u32 size;

	if (!t)
		return 0;
	size = t->call.b;
	/* No id is passed: all ranks belong to this process. */
	identity = mix64(t->process ^ t->call.enter_boot_ns) | 1;
	for (__u32 i = 0; i < NCCL_INIT_ALL_DEVICES; i++) {
		__u64 handle = 0;
		__s32 device = i;

		if (i >= size)
			break;
		if (!call_read(&handle, 8, t->call.a + 8 * i, may_sleep))
			break;
		if (t->call.stream && !call_read(&device, 4, t->call.stream + 4 * i, may_sleep))
			device = -1;
		create_of_all(t->process, identity, handle, (__u64)i << 32 | size, device);
	}
	if (size > NCCL_INIT_ALL_DEVICES)
		drop(DROP_COMMUNICATORS_FULL);
	return 0;
}

/* Stores what a call returned about a communicator. */
static __noinline int answer_learn(struct thread *t, __u32 op, bool may_sleep)
{
	struct communicator *c;
	__s32 answer;
	__u64 handle = 0;

	if (!t || !call_read(&answer, 4, t->call.a, may_sleep))
		return 0;
	c = communicator_learn(t->process, t->call.communicator);
	if (!c)
		return 0;
	switch (op) {
	case NCCL_ASYNC_ERROR:
		if (nccl_failed(answer))
			c->error = answer;
		if (t->call.pending.address && answer == NCCL_SUCCESS) {
			call_read(&handle, 8, t->call.pending.address, may_sleep);
			create_done(t, &t->call.pending, handle);
			t->call.pending.address = 0;
		}
		break;
	case NCCL_USER_RANK:
		c->rank = answer;
		break;
	case NCCL_USER_COUNT:
		c->size = answer;
		break;
	case NCCL_USER_DEVICE:
		c->device = answer;
		break;
	}
	return 0;
}

static __noinline int communicator_ends(struct thread *t, __u32 state)
{
	struct communicator *c;

	if (!t)
		return 0;
	c = communicator_find(t->process, t->call.communicator);
	if (c && c->state < state)
		c->state = state;
	return 0;
}

/* As in memory/calls.h, for the functions that determine a communicator's device. */
static __always_inline void context_returned(struct thread *t, __u32 op, bool may_sleep)
{
	struct inflight *call = &t->call;
	__u64 handle = 0;

	switch (op) {
	case CUDA_CONTEXT_CREATE:
	case CUDA_CONTEXT_RETAIN:
		if (!call_read(&handle, 8, call->a, may_sleep))
			break;
		context_learn(t->process, handle, call->b);
		if (op == CUDA_CONTEXT_CREATE)
			context_push(t, handle);
		break;
	case CUDA_CONTEXT_SET:
		context_set(t, call->a);
		break;
	case CUDA_CONTEXT_PUSH:
		context_push(t, call->a);
		break;
	case CUDA_CONTEXT_POP:
		context_pop(t);
		break;
#ifndef LINUX_5_10
	case HIP_DEVICE_SET:
		t->device_hint = call->a;
		break;
#endif
	}
}

static __always_inline void group_started(struct thread *t)
{
	struct nccl_group *group = nccl_group_of(t);

	if (!group->depth++) {
		group->serial = t->call.enter_boot_ns ^ bpf_get_current_pid_tgid() << 40;
		group->communicators = group->created_count = 0;
	}
}

/* A function of the driver succeeded: a wait, or what has to do with contexts. */
static __always_inline void driver_returned(struct thread *t, __u32 op, bool may_sleep)
{
	struct inflight *call = &t->call;

	switch (op) {
	case CUDA_STREAM_WAIT:
	case HIP_COPY_WAIT:
	case CUDA_COPY_WAIT:
	case CUDA_STREAM_QUERY:
		stream_done(t->process, call->stream, call->enter_boot_ns);
		break;
	case CUDA_EVENT_RECORD:
		event_recorded(t->process, call->a, call->stream, call->enter_boot_ns);
		break;
	case CUDA_EVENT_WAIT:
	case CUDA_EVENT_QUERY:
		event_done(t->process, call->a);
		break;
	case CUDA_STREAM_AFTER:
		stream_waits(t, call->stream, call->b, call->enter_boot_ns);
		break;
	case CUDA_CAPTURE:
		stream_capture(t, call->stream, 1);
		break;
	case CUDA_CONTEXT_WAIT:
		context_done(t->process, call->stream, call->enter_boot_ns);
		break;
	default:
		context_returned(t, op, may_sleep);
	}
}

/* A call that is not an operation has returned. */
static __noinline int nccl_returned(struct thread *t, __u32 result, bool may_sleep)
{
	struct nccl_group *group;
	struct inflight *call;
	__u64 spent;
	__u32 op;

	if (!t)
		return 0;
	call = &t->call;
	op = nccl_api_of(call->api)->op;
	spent = bpf_ktime_get_boot_ns() - call->enter_boot_ns;
	if (op == NCCL_INIT_RANK || op == NCCL_INIT_SCALABLE || op == NCCL_SPLIT)
		creating_ends(t->process);
	if (op == NCCL_OP_GROUP_END || op == NCCL_GROUP_SIMULATE_END) {
		group = nccl_group_of(t);
		if (group->depth && --group->depth == 0)
			group_ended(t, result, may_sleep);
		return 0;
	}
	if (result == CUDA_NOT_READY && op == CUDA_STREAM_QUERY)
		stream_pending(t->process, call->stream, call->enter_boot_ns, 0);
	else if (result == CUDA_NOT_READY && op == CUDA_EVENT_QUERY)
		event_pending(t->process, call->a, 0);
	if (op == CUDA_COPY) { /* also if it has failed */
		stream_copies(t->process, call->stream, 0, bpf_get_current_pid_tgid());
		return 0;
	}
	if (op > NCCL_CUDA ? result != 0 : nccl_failed(result))
		return 0;
	switch (op) {
	case NCCL_GROUP_START:
		group_started(t);
		break;
	case NCCL_OP_MEM_ALLOC:
		operation_add(t->process, 0, 0, op, 0, call->b, spent);
		break;
	case NCCL_OP_MEM_FREE:
		operation_add(t->process, 0, 0, op, 0, 0, spent);
		break;
	case NCCL_SPLIT:
	case NCCL_SHRINK:
		create_child(t, op == NCCL_SPLIT ? (__u32)call->created.color : call->a,
			     op == NCCL_SHRINK);
		/* fallthrough */
	case NCCL_INIT_RANK:
	case NCCL_INIT_SCALABLE:
		created_returned(t, result, may_sleep);
		break;
	case NCCL_INIT_ALL:
		all_created(t, may_sleep);
		break;
	case NCCL_FINALIZE:
		communicator_ends(t, COMMUNICATOR_FINALIZED);
		break;
	case NCCL_DESTROY:
		communicator_ends(t, COMMUNICATOR_DESTROYED);
		break;
	case NCCL_ABORT:
		communicator_ends(t, COMMUNICATOR_ABORTED);
		break;
	case NCCL_ASYNC_ERROR:
	case NCCL_USER_RANK:
	case NCCL_USER_COUNT:
	case NCCL_USER_DEVICE:
		answer_learn(t, op, may_sleep);
		break;
	default:
		driver_returned(t, op, may_sleep);
	}
	return 0;
}

#endif
