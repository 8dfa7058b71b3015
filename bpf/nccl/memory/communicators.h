/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_MEMORY_COMMUNICATORS_H
#define GPU_GADGETS_NCCL_MEMORY_COMMUNICATORS_H

#include "nccl/memory/identity.h"
#include "process/facts.h"

/*
 * communicators: those for which NCCL allocates memory, and the sums of what it holds for each.
 * In a process they are numbered from 1 on: a handle (ncclComm_t) is reused, a number is not.
 * Number 0 is memory of NCCL whose communicator is unknown, or that has none.
 *
 * Not for kernels before 6.0, which have no task storage (nccl/memory/calls.h).
 */

/*
 * Set by the operator before the programs are loaded, as are the sizes of the maps; if it is off,
 * the verifier removes the code. ig recognises a constant by a second variable with its prefix.
 */
const volatile bool nccl_owners = false;
const volatile bool gadget_var_nccl_owners = false;

/* Entries of the maps, as the operator makes them. */
#ifndef MAX_OWNERS
#define MAX_OWNERS 16384
#define MAX_OWNER_SUMS 65536
#endif

/* When NCCL allocated. */
enum owner_phase {
	OWNER_NONE,	 /* it did not */
	OWNER_INIT,	 /* in ncclCommInitRank and the like */
	OWNER_OPERATION, /* in a collective, a send, a receive, or the end of their group */
	OWNER_THREAD,	 /* on a thread that NCCL started */
	OWNER_MEM_ALLOC, /* in ncclMemAlloc: a buffer of the program's, of no communicator */
	OWNER_OTHER,	 /* in another function with a communicator */
};

#define OWNER_PHASES { "", "init", "operation", "thread", "ncclMemAlloc", "other" }

enum owner_end {
	OWNER_ACTIVE,
	OWNER_FINALIZED,
	OWNER_DESTROYED,
	OWNER_ABORTED,
};

#define OWNER_STATES { "active", "finalized", "destroyed", "aborted" }

struct owner_key {
	__u64 process;
	__u64 number;
};

struct owner {
	__u64 handle;		  /* 0: not made yet, or its making failed */
	__u64 identity;		  /* the same in all ranks; 0: unknown */
	__u64 stack;		  /* of the call that made it; 0: unknown */
	__s32 rank, size, device; /* -1: unknown */
	__u32 children;		  /* splits and shrinks of it */
	__u32 state;		  /* enum owner_end */
	__u32 pad;
	char name[NCCL_NAME_BYTES];
};

/*
 * (process, number) → communicator. Written by the probes of NCCL, read by the iterator of
 * sums_by_communicator; entries of ended processes are deleted by user space. All maps have one
 * entry until nccl_owners is set.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1);
	__type(key, struct owner_key);
	__type(value, struct owner);
} owners_by_number SEC(".maps");

struct owner_handle_key {
	__u64 process;
	__u64 handle;
};

/* (process, handle) → number. As owners_by_number; deleted when the communicator ends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1);
	__type(key, struct owner_handle_key);
	__type(value, __u64);
} owner_by_handle SEC(".maps");

/* Process → its newest number. As owners_by_number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} owner_numbers SEC(".maps");

/* An allocation keeps its owner in this many bits. */
#define OWNER_MOST 0xffff

struct owner_sum_key {
	__u64 process;
	__u32 number;
	__u32 phase; /* enum owner_phase */
	__u32 kind;  /* enum alloc_kind */
	__s32 device;
};

struct owner_sum {
	__u64 alloc_bytes, alloc_objects;
	__u64 freed_bytes, freed_objects;
	__u64 implicit_bytes, implicit_objects;
	__u64 inuse_bytes, peak_bytes;
};

/* (communicator, phase, kind, device) → sums, as those of memory/rows.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1);
	__type(key, struct owner_sum_key);
	__type(value, struct owner_sum);
} sums_by_communicator SEC(".maps");

static __always_inline struct owner *owner_of(__u64 process, __u64 number)
{
	struct owner_key key = { .process = process, .number = number };

	return bpf_map_lookup_elem(&owners_by_number, &key);
}

/* The number of a communicator; 0: not known. */
static __noinline __u32 owner_number(__u64 process, __u64 handle)
{
	struct owner_handle_key key = { .process = process, .handle = handle };
	__u64 *number = bpf_map_lookup_elem(&owner_by_handle, &key);

	return number ? *number : 0;
}

/* Gives a communicator of a remembered process its number. 0: no room, which is counted. */
static __noinline __u32 owner_new(__u64 process, struct owner *fresh)
{
	struct owner_key key = { .process = process };
	__u64 zero = 0, *newest;

	if (!fresh)
		return 0;
	if (!FACT_TAKE_KNOWN(QUOTA_OWNERS, MAX_OWNERS)) {
		drop(DROP_BUFFERS_FULL);
		return 0;
	}
	newest = bpf_map_lookup_elem(&owner_numbers, &process);
	if (!newest) {
		bpf_map_update_elem(&owner_numbers, &process, &zero, BPF_NOEXIST);
		newest = bpf_map_lookup_elem(&owner_numbers, &process);
	}
	if (newest)
		key.number = __sync_fetch_and_add(newest, 1) + 1;
	if (!newest || key.number > OWNER_MOST ||
	    bpf_map_update_elem(&owners_by_number, &key, fresh, BPF_ANY)) {
		QUOTA_GIVE(QUOTA_OWNERS);
		drop(DROP_BUFFERS_FULL);
		return 0;
	}
	return key.number;
}

/* A communicator has a handle, which another one had before if that has ended. */
static __noinline int owner_has_handle(__u64 process, __u64 number, __u64 handle)
{
	struct owner_handle_key key = { .process = process, .handle = handle };
	struct owner *o = owner_of(process, number);

	if (!o || !handle)
		return 0;
	o->handle = handle;
	if (bpf_map_update_elem(&owner_by_handle, &key, &number, BPF_ANY))
		drop(DROP_BUFFERS_FULL);
	return 0;
}

/* The handle may be reused from now on. */
static __noinline int owner_ends(__u64 process, __u64 number, __u64 handle, __u32 state)
{
	struct owner_handle_key key = { .process = process, .handle = handle };
	struct owner *o = owner_of(process, number);

	if (!o)
		return 0;
	o->state = state;
	if (state >= OWNER_DESTROYED)
		bpf_map_delete_elem(&owner_by_handle, &key);
	return 0;
}

/* Who an allocation belongs to, as it is kept with it: 0 if NCCL did not allocate it. */
#define OWNER(phase, number) ((phase) << 16 | (number))

static __always_inline void owner_sum_key_of(struct owner_sum_key *key, __u64 process, __u32 owner,
					     __u64 kind_device)
{
	key->process = process;
	key->number = owner & OWNER_MOST;
	key->phase = owner >> 16;
	key->kind = kind_device >> 32;
	key->device = kind_device;
}

#define OWNER_PLACE(kind, device) ((__u64)(kind) << 32 | (__u32)(device))

/* An allocation of `place`, a kind and a device, was made for `owner`. */
static __noinline int owner_allocated(__u64 process, __u32 owner, __u64 place, __u64 bytes)
{
	struct owner_sum_key key;
	struct owner_sum fresh = {}, *sum;
	__u64 now;

	owner_sum_key_of(&key, process, owner, place);
	sum = bpf_map_lookup_elem(&sums_by_communicator, &key);
	if (!sum && FACT_ADD(process, QUOTA_SUMS, MAX_OWNER_SUMS,
			     bpf_map_update_elem(&sums_by_communicator, &key, &fresh, BPF_NOEXIST)))
		sum = bpf_map_lookup_elem(&sums_by_communicator, &key);
	if (!sum) {
		drop(DROP_BUFFERS_FULL);
		return 0;
	}
	__sync_fetch_and_add(&sum->alloc_bytes, bytes);
	__sync_fetch_and_add(&sum->alloc_objects, 1);
	now = __sync_fetch_and_add(&sum->inuse_bytes, bytes) + bytes;
	/* As in memory/rows.h: others may raise it meanwhile. */
	for (int i = 0; i < 8; i++) {
		__u64 peak = sum->peak_bytes;

		if (peak >= now || __sync_val_compare_and_swap(&sum->peak_bytes, peak, now) == peak)
			break;
	}
	return 0;
}

/* It was freed; `implicit`: with its context. */
static __noinline int owner_freed(__u64 process, __u32 owner, __u64 place, __u64 bytes,
				  bool implicit)
{
	struct owner_sum_key key;
	struct owner_sum *sum;

	owner_sum_key_of(&key, process, owner, place);
	sum = bpf_map_lookup_elem(&sums_by_communicator, &key);
	if (!sum)
		return 0;
	if (implicit) {
		__sync_fetch_and_add(&sum->implicit_bytes, bytes);
		__sync_fetch_and_add(&sum->implicit_objects, 1);
	} else {
		__sync_fetch_and_add(&sum->freed_bytes, bytes);
		__sync_fetch_and_add(&sum->freed_objects, 1);
	}
	__sync_fetch_and_add(&sum->inuse_bytes, -bytes);
	return 0;
}

#endif
