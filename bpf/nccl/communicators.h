/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_COMMUNICATORS_H
#define GPU_GADGETS_NCCL_COMMUNICATORS_H

#include "program/drops.h"
#include "nccl/inflight.h"
#include "process/quota.h"
#include "process/rows.h"

/*
 * communicators: which operations each rank has issued to each of its communicators, and
 * how many of them are known to be done.
 *
 * Ranks are compared by numbers that they have in common: the identity of the
 * communicator; the sequence number of a collective in it; the sequence number of a send
 * to, or a receive from, a peer.
 *
 * Functions here take numbers and not pointers, so that they can be global, which the
 * verifier checks once each; on 5.10 global functions take no pointers.
 */
#ifndef MAX_COMMUNICATORS
#define MAX_COMMUNICATORS 16384
#endif
#ifndef MAX_OPERATION_ROWS
#define MAX_OPERATION_ROWS 65536
#endif
/* What one tenant may have: process/quota.h. */
#define COMMUNICATORS_OWN (MAX_COMMUNICATORS / 8)
#define OPERATIONS_OWN (MAX_OPERATION_ROWS / 4)
#define NCCL_RING 16 /* newest operations of a communicator; a power of two */
#define NCCL_DIGESTS 32 /* of a communicator; a power of two */
#define NCCL_DIGEST_EVERY 16 /* collectives; the ring shows newer ones */

enum nccl_operation_flag {
	NCCL_GROUPED = 1, /* issued at the end of its group */
	NCCL_FAILED = 2,  /* NCCL refused it, or did not launch its group: it is not issued */
	NCCL_DONE = 4,	  /* done_boot_ns is valid */
	NCCL_CAPTURED = 8, /* a node of a graph: it is not executed, whether done or not */
};

/* One operation. Go mirror: operators/decode/nccl (wire.go), checked against BTF. */
struct nccl_operation {
	__u64 seq;   /* 1, 2, … of the communicator, in this process */
	__u64 match; /* collectives: of all collectives; sends, receives: with that peer */
	__u64 op_seq; /* of this kind */
	__u64 group;  /* the group that issues it; 0: none */
	__u64 enter_boot_ns, return_boot_ns; /* return 0: the call, or its group, has not returned */
	__u64 done_boot_ns; /* upper bound of its completion */
	__u64 count;	    /* elements */
	__u64 stream;
	__u64 stack;
	__u32 tid;
	__s32 peer; /* or root; -1: none */
	__u32 reduction;
	__u8 op;   /* enum nccl_op */
	__u8 type; /* ncclDataType_t */
	__u8 flags; /* enum nccl_operation_flag */
	__u8 pad;
};

enum communicator_state {
	COMMUNICATOR_ACTIVE,
	COMMUNICATOR_FINALIZED,
	COMMUNICATOR_DESTROYED,
	COMMUNICATOR_ABORTED,
	COMMUNICATOR_CREATING, /* a call of which the return makes it: nccl/create.h */
};

struct communicator_key {
	__u64 process;
	__u64 handle; /* ncclComm_t */
};

struct communicator {
	__u64 identity; /* the same in all ranks; 0: unknown */
	__u64 parent;	/* identity of the one it was split from; 0: none, unknown */
	__s32 rank, size; /* -1: unknown */
	__s32 device;	  /* CUDA ordinal; -1: unknown */
	__s32 color, key, parent_rank; /* of a split */
	char name[NCCL_NAME_BYTES];
	__u64 created_boot_ns; /* or first seen */
	__u64 serial;	       /* unique: created_boot_ns mixed with the thread */
	__u64 seq;	   /* operations issued, or entered */
	__u64 collectives; /* of them, all but sends and receives */
	__u64 by_op[16]; /* enum nccl_op */
	__u64 completed_seq; /* newest operation known to be done */
	__u64 completed_enter_ns, completed_boot_ns; /* its bounds */
	__u64 completed_collectives, completed_collective_ns; /* of the collectives */
	__u64 digest; /* of the collectives: nccl/digest.h */
	__u64 digest_before; /* without the newest */
	__u64 group; /* newest group with operations of it … */
	__u32 group_by_op[16]; /* … how many of them there are, by enum nccl_op … */
	__u64 group_peers; /* … the newest peer of its sends and receives: peer_code() … */
	__u64 group_digest; /* … and the digest before it */
	__u64 failed;
	__u32 children; /* number of splits and shrinks, for the children's identities */
	__u32 state;	/* enum communicator_state */
	__u32 error;	/* newest ncclResult_t of a failed call or ncclCommGetAsyncError */
	__u32 late;	/* learned from a call after the one that created it */
	struct nccl_operation ring[NCCL_RING];
	/* The first collective that was not known to be done when a newer operation took its slot. */
	struct nccl_operation oldest;
	/*
	 * The digest up to each of the newest collectives whose number is a multiple of
	 * NCCL_DIGEST_EVERY, by number / NCCL_DIGEST_EVERY modulo NCCL_DIGESTS: its upper 48 bits,
	 * and 16 of number / NCCL_DIGEST_EVERY. 0: none.
	 */
	__u64 digests[NCCL_DIGESTS];
};

/*
 * (process, handle) → communicator. Written by the probes, read by iter/bpf_map_elem;
 * user space deletes entries of ended processes and, when the map fills up, of destroyed
 * communicators. Not LRU: the entry of a rank that hangs is the one that has been idle
 * longest.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_COMMUNICATORS);
	__type(key, struct communicator_key);
	__type(value, struct communicator);
} communicators_by_handle SEC(".maps");

/* [0]: zeroes, for new entries, which are too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct communicator);
} communicator_unused SEC(".maps");

struct operation_key {
	__u64 process;
	__u64 serial; /* of the communicator: handles are reused; 0: GroupEnd, MemAlloc, MemFree */
	__u8 op, type;
	__u8 size_class; /* 0: no bytes; n: at least 2^(n-1) */
	__u8 pad[5];
};

struct operation_row {
	__u64 handle, identity;
	__u64 calls, bytes;
	__u64 enqueue_ns; /* in the call itself: NCCL's operations continue after it */
	__u64 timed, timed_bytes; /* those whose completion was seen in time … */
	__u64 timed_ns; /* … from the call's entry: an upper bound */
};

/* (communicator, operation, type, size) → sums. As communicators_by_handle. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_OPERATION_ROWS);
	__type(key, struct operation_key);
	__type(value, struct operation_row);
} operations_by_size SEC(".maps");

static const __u8 nccl_type_bytes[16] = NCCL_TYPE_BYTES;

static __always_inline __u64 nccl_bytes(__u64 type, __u64 count)
{
	__u64 index = type;

	asm volatile("%0 &= 15" : "+r"(index));
	return count * nccl_type_bytes[index]; /* 0 where the type is none */
}

/* 1 + log2(bytes); 0 for none. */
static __always_inline __u8 size_class_of(__u64 bytes)
{
	__u8 class = 0;

	for (int shift = 32; shift; shift >>= 1)
		if (bytes >> shift) {
			bytes >>= shift;
			class += shift;
		}
	return bytes ? class + 1 : 0;
}

static __always_inline struct communicator *communicator_find(__u64 process, __u64 handle)
{
	struct communicator_key key = { .process = process, .handle = handle };

	return bpf_map_lookup_elem(&communicators_by_handle, &key);
}

static __noinline struct operation_row *operation_row_new(struct operation_key *key, __u64 handle,
							  __u64 identity)
{
	struct operation_row fresh = { .handle = handle, .identity = identity };
	struct operation_row *row;

	if (!key)
		return 0;
	if (!QUOTA_TAKE_OWN(QUOTA_OPERATIONS, OPERATIONS_OWN)) {
		drop(DROP_ROWS_FULL);
		return 0;
	}
	bpf_map_update_elem(&operations_by_size, key, &fresh, BPF_NOEXIST);
	row = bpf_map_lookup_elem(&operations_by_size, key);
	if (!row)
		drop(DROP_ROWS_FULL);
	return row;
}

/* Returns the sums of an operation, and creates them for the first one. NULL: no room,
 * which is counted. */
static __always_inline struct operation_row *operation_row_of(struct operation_key *key,
							      __u64 handle, __u64 identity)
{
	struct operation_row *row = bpf_map_lookup_elem(&operations_by_size, key);

	return row ? row : operation_row_new(key, handle, identity);
}

/* Creates a communicator, instead of an ended one with the same handle. 0: no room. */
static __noinline struct communicator *communicator_new(__u64 process, __u64 handle)
{
	struct communicator_key key = { .process = process, .handle = handle };
	struct communicator *c;
	__u32 zero = 0;
	void *unused;

	unused = bpf_map_lookup_elem(&communicator_unused, &zero);
	if (!unused)
		return 0;
	if (!process_remember_current(process))
		return 0;
	if ((!bpf_map_lookup_elem(&communicators_by_handle, &key) &&
	     !QUOTA_TAKE_OWN(QUOTA_COMMUNICATORS, COMMUNICATORS_OWN)) ||
	    bpf_map_update_elem(&communicators_by_handle, &key, unused, BPF_ANY)) {
		drop(DROP_COMMUNICATORS_FULL);
		return 0;
	}
	c = bpf_map_lookup_elem(&communicators_by_handle, &key);
	if (!c)
		return 0;
	c->rank = c->size = c->device = c->parent_rank = -1;
	c->created_boot_ns = bpf_ktime_get_boot_ns();
	c->serial = (c->created_boot_ns ^ bpf_get_current_pid_tgid() << 40) | 1;
	return c;
}

/* As communicator_find(), and creates the entry if the communicator is older than the attach. */
static __always_inline struct communicator *communicator_learn(__u64 process, __u64 handle)
{
	struct communicator *c = communicator_find(process, handle);

	if (c || !handle)
		return c;
	c = communicator_new(process, handle);
	if (c)
		c->late = 1;
	return c;
}

static __always_inline struct nccl_operation *ring_slot(struct communicator *c, __u64 seq)
{
	__u64 index = seq;

	asm volatile("%0 &= %1" : "+r"(index) : "i"(NCCL_RING - 1));
	return &c->ring[index];
}

/* The operation of a slot of the ring, or the oldest: NCCL_RING. */
static __always_inline struct nccl_operation *operation_at(struct communicator *c, __u64 slot)
{
	return slot == NCCL_RING ? &c->oldest : ring_slot(c, slot);
}

#endif
