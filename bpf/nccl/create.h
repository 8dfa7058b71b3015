/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_CREATE_H
#define GPU_GADGETS_NCCL_CREATE_H

#include "call/context.h"
#include "nccl/communicators.h"
#include "nccl/memory/identity.h"

/*
 * create: creation of communicators, and the identity that all ranks of one have in
 * common. It is derived from what all ranks pass: the unique id; or the parent's
 * identity, the number of earlier children, and the colour or the excluded ranks.
 */
#define NCCL_INIT_ALL_DEVICES 64

/* At the entry of ncclCommInitRank, InitRankConfig and InitRankScalable. */
static __always_inline void create_rank(struct thread *t, __u64 id_at, __s32 rank, __s32 size,
					__u64 config)
{
	struct nccl_created *created = &t->call.created;

	created->rank = rank;
	created->size = size;
	created->parent_rank = -1;
	if (!bpf_probe_read_user(t->call.unique_id, NCCL_UNIQUE_ID_BYTES, (void *)id_at))
		created->identity = identity_of(t->call.unique_id);
	else
		drop(DROP_READ_ARGUMENT);
	config_name(created->name, config);
	context_needed(t, &created->device);
}

/* At the entry of ncclCommShrink: the excluded ranks, and how many of them precede this
 * rank. */
static __noinline int create_excluded(struct thread *t, __u64 list)
{
	struct communicator *parent;

	if (!t)
		return 0;
	parent = communicator_learn(t->process, t->call.communicator);
	t->call.a = identity_of_excluded(list, t->call.b, parent ? parent->rank : -1,
					 &t->call.created.key);
	return 0;
}

/* At the return of ncclCommSplit and ncclCommShrink: the identity of the child. */
static __noinline int create_child(struct thread *t, __u64 shared, bool shrink)
{
	struct nccl_created *created;
	struct communicator *parent;
	__u64 number;

	if (!t)
		return 0;
	created = &t->call.created;
	parent = communicator_learn(t->process, t->call.communicator);
	if (!parent)
		return 0;
	number = ++parent->children; /* calls on a communicator are serial */
	created->device = parent->device;
	created->parent_rank = parent->rank;
	created->parent = parent->identity;
	created->identity = identity_of_child(parent->identity, number, shared);
	if (shrink && parent->size >= 0) {
		created->size = parent->size - (__s32)t->call.b;
		created->rank = parent->rank < 0 ? -1 : parent->rank - created->key;
	}
	return 0;
}

/* A communicator has a handle now. */
static __noinline int create_done(struct thread *t, struct nccl_created *created, __u64 handle)
{
	struct communicator *c;

	if (!t || !created || !handle)
		return 0;
	c = communicator_new(t->process, handle);
	if (!c)
		return 0;
	c->identity = created->identity;
	c->parent = created->parent;
	c->rank = created->rank;
	c->size = created->size;
	c->device = created->device;
	c->color = created->color;
	c->key = created->key;
	c->parent_rank = created->parent_rank;
	__builtin_memcpy(c->name, created->name, sizeof(c->name));
	return 0;
}

/* Stands for the communicator that the current thread creates: user space has no such addresses. */
static __always_inline __u64 creating_handle(void)
{
	return 1ULL << 63 | (__u32)bpf_get_current_pid_tgid();
}

/*
 * A thread has entered a call that returns once all ranks have made it, to create a communicator, or, if
 * it `splits`, once all ranks of the parent have: there is an entry until it returns. In a group the
 * group's end waits, of which nothing is noted.
 */
static __noinline int creating_begins(struct thread *t, bool splits)
{
	struct communicator *parent = 0, *c;

	if (!t || (t->call.group_process == t->process && t->call.group.depth))
		return 0;
	if (splits) {
		parent = communicator_find(t->process, t->call.communicator);
		if (!parent || !parent->identity || parent->rank < 0)
			return 0;
	}
	c = communicator_new(t->process, creating_handle());
	if (!c)
		return 0;
	c->state = COMMUNICATOR_CREATING;
	c->identity = t->call.created.identity;
	c->rank = t->call.created.rank;
	c->size = t->call.created.size;
	c->device = t->call.created.device;
	__builtin_memcpy(c->name, t->call.created.name, sizeof(c->name));
	if (!parent)
		return 0;
	/* Whatever the colour, all ranks of the parent wait for each other. */
	c->parent = parent->identity;
	c->identity = identity_of_child(parent->identity, parent->children + 1ULL, ~0ULL);
	c->rank = parent->rank;
	c->size = parent->size;
	c->device = parent->device;
	return 0;
}

/* The call has returned. */
static __noinline int creating_ends(__u64 process)
{
	struct communicator_key key = { .process = process, .handle = creating_handle() };

	if (!bpf_map_delete_elem(&communicators_by_handle, &key))
		QUOTA_GIVE(QUOTA_COMMUNICATORS);
	return 0;
}

/* One of ncclCommInitAll: ranks are devices of this process. `place`: rank and size. */
__noinline int create_of_all(__u64 process, __u64 identity, __u64 handle, __u64 place, __u64 device)
{
	struct communicator *c;

	if (!handle)
		return 0;
	c = communicator_new(process, handle);
	if (!c)
		return 0;
	c->identity = identity;
	c->rank = place >> 32;
	c->size = (__u32)place;
	c->device = device;
	return 0;
}

#endif
