/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_ROWS_H
#define GPU_GADGETS_NCCL_ROWS_H

#include "nccl/peers.h"
#include "nccl/streams.h"

/*
 * rows: the data sources `communicators`, `operations` and `peers` as user space
 * reads them. Their layout is mirrored in operators/decode/nccl (wire.go).
 */

/* One communicator of one process: a rank. */
struct communicator_row {
	struct gadget_process proc;
	__u64 process;
	__u64 communicator; /* ncclComm_t; while it is created, creating_handle() */
	__u64 identity;	    /* the same in all ranks; 0: unknown */
	__u64 parent;	    /* identity */
	char name[NCCL_NAME_BYTES];
	__s32 rank, size, device; /* -1: unknown */
	__s32 color, key, parent_rank; /* of a split */
	char state[12];
	__u32 late;
	__u32 in_group; /* the newest operation waits for the end of its group */
	__u32 error;
	__u64 failed;
	__u64 created_boot_ns;
	__u64 exit_boot_ns; /* of the process; 0: runs */
	/* The newest operation; seq 0: none. */
	__u64 seq, collectives, match, op_seq;
	char op[NCCL_TEXT_BYTES];
	char type[NCCL_TEXT_BYTES];
	char reduction[NCCL_TEXT_BYTES];
	__u64 count;
	gadget_bytes bytes;
	__u64 stream;
	__s32 peer;
	__u32 tid;
	__u64 enter_boot_ns, return_boot_ns;
	__u64 stack_id;
	/* The newest operation that is known to be done. */
	__u64 completed_seq, completed_enter_ns, completed_boot_ns;
	__u64 completed_collectives, completed_collective_ns;
	/*
	 * At pending_boot_ns, operations on the newest one's stream that were issued
	 * before pending_covered_ns and are not marked done were seen to be pending. While
	 * a thread waits for them, this is the current time. 0: no call has queried them.
	 */
	__u64 pending_covered_ns, pending_boot_ns;
	__u64 now_boot_ns; /* when the row was read */
	/* The newest 16, struct nccl_operation each, by seq modulo 16. */
	__u64 ring[NCCL_RING * sizeof(struct nccl_operation) / 8];
	__u64 oldest[sizeof(struct nccl_operation) / 8]; /* seq 0: none */
	__u64 digests[NCCL_DIGESTS]; /* as in struct communicator */
};

/* The fields before the ring; with it they would not fit the program's stack. */
#define COMMUNICATOR_ROW_HEAD __builtin_offsetof(struct communicator_row, ring)
struct communicator_head {
	__u8 bytes[COMMUNICATOR_ROW_HEAD];
} __attribute__((aligned(8)));

GADGET_ITER(communicators, communicator_row, dump_communicators);
GADGET_ITER_TARGET_MAP(dump_communicators, communicators_by_handle);

static const char communicator_states[8][12] = { "active", "finalized", "destroyed", "aborted", "creating" };

SEC("iter/bpf_map_elem")
int dump_communicators(struct bpf_iter__bpf_map_elem *ctx)
{
	struct communicator_head head = {};
	struct communicator_row *r = (struct communicator_row *)&head;
	struct communicator_key *key = ctx->key;
	struct communicator *c;
	struct nccl_operation *o;
	struct process *p;
	struct stream *s;
	__u64 process;

	if (!key)
		return 0;
	process = key->process;
	/* ctx->value cannot be indexed by a variable. */
	c = communicator_find(process, key->handle);
	if (!c)
		return 0;
	p = bpf_map_lookup_elem(&processes_by_id, &process);
	if (p) {
		r->proc = p->proc;
		r->exit_boot_ns = p->exit_boot_ns;
	}
	r->process = process;
	r->communicator = key->handle;
	r->identity = c->identity;
	r->parent = c->parent;
	__builtin_memcpy(r->name, c->name, sizeof(r->name));
	r->rank = c->rank;
	r->size = c->size;
	r->device = c->device;
	r->color = c->color;
	r->key = c->key;
	r->parent_rank = c->parent_rank;
	bpf_probe_read_kernel(r->state, sizeof(r->state), communicator_states[c->state & 7]);
	r->late = c->late;
	r->error = c->error;
	r->failed = c->failed;
	r->created_boot_ns = c->created_boot_ns;
	r->completed_seq = c->completed_seq;
	r->completed_enter_ns = c->completed_enter_ns;
	r->completed_boot_ns = c->completed_boot_ns;
	r->seq = c->seq;
	r->collectives = c->collectives;
	o = ring_slot(c, r->seq);
	if (r->seq && o->seq == r->seq) {
		r->match = o->match;
		r->op_seq = o->op_seq;
		nccl_words((struct nccl_words *)r->op, o);
		r->count = o->count;
		r->bytes = nccl_bytes(o->type, o->count);
		r->stream = o->stream;
		r->peer = o->peer;
		r->tid = o->tid;
		r->enter_boot_ns = o->enter_boot_ns;
		r->return_boot_ns = o->return_boot_ns;
		r->stack_id = o->stack;
		r->in_group = o->flags & NCCL_GROUPED && !o->return_boot_ns;
	}
	r->completed_collectives = c->completed_collectives;
	r->completed_collective_ns = c->completed_collective_ns;
	r->now_boot_ns = bpf_ktime_get_boot_ns();
	s = r->stream ? stream_find(process, r->stream) : 0;
	if (s) {
		r->pending_covered_ns = s->pending_covered_ns;
		r->pending_boot_ns = s->waiting ? r->now_boot_ns : s->pending_boot_ns;
		if (s->copying && s->copy_covered_ns >= s->pending_covered_ns) {
			r->pending_covered_ns = s->copy_covered_ns;
			r->pending_boot_ns = r->now_boot_ns;
		}
	}
	bpf_seq_write(ctx->meta->seq, &head, sizeof(head));
	bpf_seq_write(ctx->meta->seq, c->ring, sizeof(c->ring));
	bpf_seq_write(ctx->meta->seq, &c->oldest, sizeof(c->oldest));
	bpf_seq_write(ctx->meta->seq, c->digests, sizeof(c->digests));
	return 0;
}

/* Sums of one communicator's operations of one kind, type and size. */
struct nccl_operation_row {
	struct gadget_process proc;
	__u64 process;
	__u64 communicator;
	__u64 identity;
	__s32 rank, size;
	char op[NCCL_TEXT_BYTES];
	char type[NCCL_TEXT_BYTES];
	gadget_bytes size_bytes; /* lower bound of the size class; the upper one is twice this */
	__u64 calls;
	gadget_bytes bytes;
	__u64 enqueue_ns;
	__u64 timed;
	gadget_bytes timed_bytes;
	__u64 timed_ns;
};

GADGET_ITER(operations, nccl_operation_row, dump_operations);
GADGET_ITER_TARGET_MAP(dump_operations, operations_by_size);

SEC("iter/bpf_map_elem")
int dump_operations(struct bpf_iter__bpf_map_elem *ctx)
{
	struct operation_key *key = ctx->key;
	struct operation_row *row = ctx->value;
	struct nccl_operation_row r = { .rank = -1, .size = -1 };
	struct communicator *c;
	struct process *p;
	__u64 process;

	if (!key || !row)
		return 0;
	process = key->process;
	p = bpf_map_lookup_elem(&processes_by_id, &process);
	if (p)
		r.proc = p->proc;
	r.process = process;
	r.communicator = row->handle;
	r.identity = row->identity;
	c = communicator_find(process, r.communicator);
	if (c && c->serial == key->serial) {
		r.rank = c->rank;
		r.size = c->size;
	}
	NCCL_TEXT(r.op, nccl_op_names, key->op);
	if (r.communicator)
		NCCL_TEXT(r.type, nccl_type_names, key->type);
	r.size_bytes = key->size_class ? 1ULL << ((key->size_class - 1) & 63) : 0;
	r.timed = row->timed;
	r.timed_bytes = row->timed_bytes;
	r.timed_ns = row->timed_ns;
	r.calls = row->calls;
	r.bytes = row->bytes;
	r.enqueue_ns = row->enqueue_ns;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

/* Sends or receives of one communicator with one peer. */
struct nccl_peer_row {
	__u64 process;
	__u64 communicator;
	__u64 identity;
	__u32 pid;
	__s32 rank, peer;
	char op[NCCL_TEXT_BYTES + 4]; /* no implicit padding */
	__u64 issued, completed;
	__u64 enter_boot_ns; /* of the newest */
};

GADGET_ITER(peers, nccl_peer_row, dump_peers);
GADGET_ITER_TARGET_MAP(dump_peers, operations_by_peer);

SEC("iter/bpf_map_elem")
int dump_peers(struct bpf_iter__bpf_map_elem *ctx)
{
	struct peer_key *key = ctx->key;
	struct peer *peer = ctx->value;
	struct nccl_peer_row r = { .rank = -1 };
	struct communicator *c;
	struct process *p;
	__u64 process;

	if (!key || !peer)
		return 0;
	process = key->process;
	r.process = process;
	r.communicator = peer->handle;
	c = communicator_find(process, r.communicator);
	if (c && c->serial == key->serial) {
		r.identity = c->identity;
		r.rank = c->rank;
	}
	p = bpf_map_lookup_elem(&processes_by_id, &process);
	if (p)
		r.pid = p->proc.pid;
	r.peer = key->peer;
	NCCL_TEXT(r.op, nccl_op_names, key->op);
	r.issued = peer->issued;
	r.completed = peer_completed(process, peer);
	r.enter_boot_ns = peer->enter_boot_ns;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

#endif
