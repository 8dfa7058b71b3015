/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_CREATE_H
#define GPU_GADGETS_NCCL_CREATE_H

#include "cuda/context.h"
#include "nccl/communicators.h"

/*
 * create: creation of communicators, and the identity that all ranks of one have in
 * common. It is derived from what all ranks pass: the unique id; or the parent's
 * identity, the number of earlier children, and the colour or the excluded ranks.
 */
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_INIT_ALL_DEVICES 64
#define NCCL_EXCLUDED 64

/* ncclConfig_t, nccl.h: commName came with 2.27. */
#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_CONFIG_NAMED 22700

struct nccl_config_head {
	__u64 size;
	__u32 magic, version;
	__u32 ints[4];
	__u64 net_name;
	__u32 split_share, traffic_class;
	__u64 name;
};

static __always_inline __u64 identity_of(const __u64 id[16])
{
	__u64 hash = NCCL_UNIQUE_ID_BYTES;

	for (int i = 0; i < 16; i++) {
		hash = (hash ^ id[i]) * 0x9fb21c651e98df25ULL;
		hash ^= hash >> 32;
	}
	hash = mix64(hash);
	return hash ? hash : 1;
}

/* Address of the id at the entry of ncclCommInitRank*. It is passed by value: its 128
 * bytes are on the stack (x86-64) or in a copy whose address is passed (arm64). */
static __always_inline __u64 unique_id_at(struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return PT_REGS_SP(ctx) + 8; /* behind the return address */
#else
	return PT_REGS_PARM3(ctx);
#endif
}

/* The name that a program gave a communicator; empty if none. */
static __always_inline void created_name(struct nccl_created *created, __u64 config)
{
	struct nccl_config_head head;

	if (!config || bpf_probe_read_user(&head, sizeof(head), (void *)config))
		return;
	if (head.magic == NCCL_CONFIG_MAGIC && head.version >= NCCL_CONFIG_NAMED &&
	    head.size >= sizeof(head) && head.name)
		bpf_probe_read_user_str(created->name, sizeof(created->name), (void *)head.name);
}

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
	created_name(created, config);
	context_needed(t, &created->device);
}

/* At the entry of ncclCommShrink: the excluded ranks, and how many of them precede this
 * rank. */
static __noinline int create_excluded(struct thread *t, __u64 list)
{
	struct communicator *parent;
	__u64 hash = 0;

	if (!t)
		return 0;
	parent = communicator_learn(t->process, t->call.communicator);
	for (__u32 i = 0; i < NCCL_EXCLUDED; i++) {
		__s32 rank = 0;

		if (i >= t->call.b || bpf_probe_read_user(&rank, 4, (void *)(list + 4 * i)))
			break;
		hash += mix64(rank + 1); /* in any order */
		if (parent && rank < parent->rank)
			t->call.created.key++;
	}
	t->call.a = hash;
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
	if (parent->identity)
		created->identity = mix64(parent->identity ^ mix64(number << 32 ^ shared)) | 1;
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
