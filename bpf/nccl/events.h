/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_EVENTS_H
#define GPU_GADGETS_NCCL_EVENTS_H

#include "nccl/communicators.h"

/*
 * events: two events for every operation: one when its call has returned, one when it is
 * known to be done. Only with the parameter `events`: at 50,000 calls a second sums are
 * cheaper.
 */
const volatile bool events = false;
GADGET_PARAM(events);
/* Set by the operator timeline, which needs the events but does not have them printed. */
const volatile bool timeline_events = false;
const volatile bool gadget_var_timeline_events = false;

enum nccl_event {
	NCCL_EVENT_ISSUED = 1,
	NCCL_EVENT_DONE,
	NCCL_EVENT_FAILED,
};

#define NCCL_TEXT_BYTES 16

static const char nccl_op_names[16][NCCL_TEXT_BYTES] = NCCL_OP_NAMES;
static const char nccl_type_names[16][NCCL_TEXT_BYTES] = NCCL_TYPE_NAMES;
static const char nccl_reduction_names[8][NCCL_TEXT_BYTES] = NCCL_REDUCTION_NAMES;

#define NCCL_TEXT(to, names, index)                                        \
	({                                                                 \
		__u64 index_ = (index);                                    \
		asm volatile("%0 &= %1"                                    \
			     : "+r"(index_)                                \
			     : "i"(sizeof(names) / sizeof(*(names)) - 1)); \
		bpf_probe_read_kernel(to, NCCL_TEXT_BYTES, names[index_]); \
	})

/* One operation, with names for users. */
struct nccl_words {
	char op[NCCL_TEXT_BYTES];
	char type[NCCL_TEXT_BYTES];
	char reduction[NCCL_TEXT_BYTES];
};

static __always_inline void nccl_words(struct nccl_words *w, const struct nccl_operation *o)
{
	bool reduces = o->op == NCCL_OP_ALL_REDUCE || o->op == NCCL_OP_REDUCE ||
		       o->op == NCCL_OP_REDUCE_SCATTER;

	NCCL_TEXT(w->op, nccl_op_names, o->op);
	NCCL_TEXT(w->type, nccl_type_names, o->type);
	if (reduces && o->reduction < NCCL_REDUCTION_COUNT)
		NCCL_TEXT(w->reduction, nccl_reduction_names, o->reduction);
	else if (reduces)
		__builtin_memcpy(w->reduction, "custom", 7);
}

struct operation_event {
	gadget_timestamp timestamp_raw; /* of the event */
	struct gadget_process proc;
	__u64 process;
	__u64 communicator;
	__u64 identity;
	__s32 rank, size, device;
	char what[12]; /* issued, done, failed */
	char op[NCCL_TEXT_BYTES];
	char type[NCCL_TEXT_BYTES];
	char reduction[NCCL_TEXT_BYTES];
	__u64 seq, match, op_seq;
	__u64 count;
	gadget_bytes bytes;
	__u64 stream;
	__u64 group;
	__u64 enter_boot_ns, return_boot_ns, done_boot_ns;
	__u64 stack_id;
	__s32 peer;
	__u32 tid;
};

GADGET_TRACER_MAP(operation_ring, 4 * 1024 * 1024);
GADGET_TRACER(operation_events, operation_ring, operation_event);

/* Emits an event for the operation with that number, if its communicator still has it. */
__noinline int operation_tell(__u64 process, __u64 handle, __u32 what, __u64 seq)
{
	struct communicator *c = communicator_find(process, handle);
	struct process *p = bpf_map_lookup_elem(&processes_by_id, &process);
	struct nccl_operation *o;
	struct operation_event *e;

	if (!c)
		return 0;
	o = ring_slot(c, seq);
	if (o->seq != seq)
		o = &c->oldest;
	if (o->seq != seq)
		return 0;
	e = bpf_ringbuf_reserve(&operation_ring, sizeof(*e), 0);
	if (!e) {
		drop(DROP_EVENT_FULL);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->timestamp_raw = bpf_ktime_get_boot_ns();
	if (p)
		e->proc = p->proc;
	e->process = process;
	e->communicator = handle;
	e->identity = c->identity;
	e->rank = c->rank;
	e->size = c->size;
	e->device = c->device;
	__builtin_memcpy(e->what, what == NCCL_EVENT_ISSUED ? "issued" : what == NCCL_EVENT_DONE ? "done\0\0" : "failed", 7);
	nccl_words((struct nccl_words *)e->op, o);
	e->seq = o->seq;
	e->match = o->match;
	e->op_seq = o->op_seq;
	e->count = o->count;
	e->bytes = nccl_bytes(o->type, o->count);
	e->stream = o->stream;
	e->group = o->group;
	e->enter_boot_ns = o->enter_boot_ns;
	e->return_boot_ns = o->return_boot_ns;
	e->done_boot_ns = o->done_boot_ns;
	e->stack_id = o->stack;
	e->peer = o->peer;
	e->tid = o->tid;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

static __always_inline void operation_event(__u64 process, __u64 handle, __u32 what, __u64 seq)
{
	if (events || timeline_events)
		operation_tell(process, handle, what, seq);
}

#endif
