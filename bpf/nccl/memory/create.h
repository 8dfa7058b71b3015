/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_MEMORY_CREATE_H
#define GPU_GADGETS_NCCL_MEMORY_CREATE_H

#include "call/arguments.h"
#include "nccl/memory/communicators.h"
#include "program/storage.h"

/*
 * create: what is remembered of a thread that is in a call of NCCL, and the communicators that
 * such a call makes.
 */

/* Communicators that one call, or one group, is for: more are unknown. */
#define OWNER_CANDIDATES 16

struct owner_candidate {
	__u64 address; /* where NCCL will store its handle; 0: it has one */
	__u32 number;
	__u32 phase;  /* enum owner_phase */
	__s32 device; /* -1: unknown */
	__u32 pad;
};

struct owner_thread {
	__u64 process; /* whom the rest belongs to: task storage survives exec */
	__u64 sp;      /* at entry of the call; 0: the thread is in none */
	__u64 ip;      /* of the probe */
	__u64 a;       /* the communicator, or where an answer is stored */
	__u64 b;
	__u32 op;	  /* enum nccl_op */
	__u32 depth;	  /* of ncclGroupStart */
	__u32 count;	  /* of candidates; more than OWNER_CANDIDATES: some are not there */
	__u32 is_nccl;	  /* 1: NCCL started the thread */
	__u32 wants_line; /* 1: the next stack is that of a call that makes communicators */
	__u32 pad;
	__u64 unique_id[NCCL_UNIQUE_ID_BYTES / 8];
	struct owner fresh;
	struct owner_candidate candidate[OWNER_CANDIDATES];
};

/* Thread → its call of NCCL, if it has made one or was started by NCCL. Written and read by its
 * own probes, and once by those of the thread that starts it. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct owner_thread);
} owner_by_task SEC(".maps");

static __always_inline struct owner_thread *owner_thread_of(struct task_struct *task, bool create)
{
	return storage_get(&owner_by_task, task, create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
}

/* An argument of the function that is entered; 0 for one that it does not have. */
static __noinline __u64 owner_argument(struct pt_regs *ctx, __u64 index)
{
	__u64 value[8] = {};

	if (!ctx || index > 7)
		return 0;
	arguments_in_registers(ctx, value, 0, REGISTER_ARGUMENTS);
#if defined(__TARGET_ARCH_x86)
	if (index >= REGISTER_ARGUMENTS &&
	    bpf_probe_read_user(&value[REGISTER_ARGUMENTS], 16, (void *)STACK_ARGUMENTS_AT(ctx)))
		drop(DROP_READ_ARGUMENT);
#endif
	asm volatile("%0 &= 7" : "+r"(index));
	return value[index];
}

/* One more communicator that the call or group is for. */
static __noinline int owner_add(struct owner_thread *n, __u32 number, __u32 phase, __u64 address,
				__s32 device)
{
	struct owner_candidate *c;
	__u32 i;

	if (!n)
		return 0;
	for (i = 0; i < OWNER_CANDIDATES; i++)
		if (i < n->count && number && n->candidate[i].number == number)
			return 0;
	i = n->count;
	n->count = i < OWNER_CANDIDATES ? i + 1 : OWNER_CANDIDATES + 1;
	barrier_var(i);
	if (i >= OWNER_CANDIDATES)
		return 0;
	c = &n->candidate[i];
	c->address = address;
	c->number = number;
	c->phase = phase;
	c->device = device;
	return 0;
}

/* A communicator is about to be made: `n->fresh`. */
static __noinline int owner_begins(struct owner_thread *n, __u64 address)
{
	if (!n)
		return 0;
	owner_add(n, owner_new(n->process, &n->fresh), OWNER_INIT, address, n->fresh.device);
	return 0;
}

static __always_inline void owner_rank(struct pt_regs *ctx, struct owner_thread *n, __u64 id_at,
				       __u32 rank, __u64 config)
{
	n->fresh.rank = owner_argument(ctx, rank);
	n->fresh.size = owner_argument(ctx, 1);
	if (!bpf_probe_read_user(n->unique_id, NCCL_UNIQUE_ID_BYTES, (void *)id_at))
		n->fresh.identity = identity_of(n->unique_id);
	else
		drop(DROP_READ_ARGUMENT);
	config_name(n->fresh.name, config);
	owner_begins(n, PT_REGS_PARM1(ctx));
}

/* ncclCommInitAll: all ranks are in this process. */
static __noinline int owner_all(struct owner_thread *n, __u64 handles, __u64 devices, __u32 size)
{
	__s32 device;

	if (!n)
		return 0;
	n->fresh.identity = mix64(n->process ^ bpf_ktime_get_boot_ns()) | 1;
	n->fresh.size = size;
	for (__u32 i = 0; i < OWNER_CANDIDATES; i++) {
		if (i >= size)
			break;
		device = i;
		if (devices && bpf_probe_read_user(&device, 4, (void *)(devices + 4 * i)))
			device = -1;
		n->fresh.rank = i;
		n->fresh.device = device;
		owner_begins(n, handles + 8 * i);
	}
	if (size > OWNER_CANDIDATES) {
		n->count = OWNER_CANDIDATES + 1;
		drop(DROP_BUFFERS_FULL);
	}
	return 0;
}

/* ncclCommSplit and ncclCommShrink. */
static __noinline int owner_child(struct pt_regs *ctx, struct owner_thread *n, bool shrink)
{
	struct owner *parent;
	__u64 shared, number;
	__s32 before = 0;

	if (!ctx || !n)
		return 0;
	n->fresh.rank = n->fresh.size = -1;
	parent = owner_of(n->process, owner_number(n->process, n->a));
	if (parent) {
		number = ++parent->children; /* calls on a communicator are serial */
		shared = PT_REGS_PARM2(ctx);
		if (shrink) {
			shared = identity_of_excluded(shared, PT_REGS_PARM3(ctx), parent->rank,
						      &before);
			if (parent->size >= 0)
				n->fresh.size = parent->size - (__s32)PT_REGS_PARM3(ctx);
			if (parent->rank >= 0)
				n->fresh.rank = parent->rank - before;
		} else {
			shared = (__u32)shared;
		}
		n->fresh.device = parent->device;
		n->fresh.identity = identity_of_child(parent->identity, number, shared);
	}
	config_name(n->fresh.name, PT_REGS_PARM5(ctx));
	owner_begins(n, PT_REGS_PARM4(ctx));
	return 0;
}

#endif
