/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_WAITS_H
#define GPU_GADGETS_NCCL_WAITS_H

#include "nccl/peers.h"
#include "nccl/streams.h"

/*
 * waits: when operations are done, as far as the host can see. A stream works in order.
 * So a wait for a stream covers the operations issued on it before the wait began, and a
 * wait for an event those issued before the event was recorded. If a stream waits for an
 * event, then its own completion covers the event's operations, too (one such step is
 * followed).
 */

/*
 * One operation of a communicator is done. A separate global function, which the verifier
 * checks once and not in each iteration of the loop: otherwise Linux 6.1 exceeds its
 * million instructions.
 */
__noinline int operation_done(__u64 process, __u64 handle, __u64 slot, __u64 now)
{
	struct communicator *c = communicator_find(process, handle);
	struct operation_key key = { .process = process };
	struct operation_row *row;
	struct nccl_operation *o;
	struct peer *p;
	__u64 bytes;

	if (!c)
		return 0;
	o = operation_at(c, slot);
	o->done_boot_ns = now;
	o->flags |= NCCL_DONE;
	if (o->seq > c->completed_seq) {
		c->completed_seq = o->seq;
		c->completed_enter_ns = o->enter_boot_ns;
		c->completed_boot_ns = now;
	}
	if (o->op == NCCL_OP_SEND || o->op == NCCL_OP_RECV) {
		p = peer_find(process, c, o);
		if (p && p->completed < o->match)
			p->completed = o->match;
	} else if (o->match > c->completed_collectives) {
		c->completed_collectives = o->match;
		c->completed_collective_ns = now;
	}
	bytes = nccl_bytes(o->type, o->count);
	key.serial = c->serial;
	key.op = o->op;
	key.type = o->type;
	key.size_class = size_class_of(bytes);
	row = bpf_map_lookup_elem(&operations_by_size, &key);
	if (row && !(o->flags & NCCL_CAPTURED)) {
		__sync_fetch_and_add(&row->timed, 1);
		__sync_fetch_and_add(&row->timed_bytes, bytes);
		__sync_fetch_and_add(&row->timed_ns, now - o->enter_boot_ns);
	}
	operation_event(process, handle, NCCL_EVENT_DONE, o->seq);
	return 0;
}

/* A communicator's operations on a stream that were issued before `covered` are done. */
__noinline int communicator_done(__u64 process, __u64 handle, __u64 stream, __u64 covered)
{
	struct communicator *c = communicator_find(process, handle);
	__u64 now = bpf_ktime_get_boot_ns();

	if (!c || c->completed_seq == c->seq)
		return 0;
	for (__u64 slot = 0; slot <= NCCL_RING; slot++) {
		struct nccl_operation *o = operation_at(c, slot);

		if (o->stream != stream || !o->seq || o->flags & (NCCL_DONE | NCCL_FAILED) ||
		    !o->return_boot_ns || o->return_boot_ns > covered)
			continue;
		operation_done(process, handle, slot, now);
	}
	return 0;
}

/* Marks the operations that communicators issued on this very stream. */
__noinline int stream_done_itself(__u64 process, __u64 stream, __u64 covered)
{
	struct stream *s = stream_find(process, stream);

	if (!s)
		return 0;
	if (s->done_ns < covered)
		s->done_ns = covered;
	for (int i = 0; i < STREAM_COMMUNICATORS; i++) {
		if (i >= s->communicators)
			break;
		communicator_done(process, s->communicator[i], stream, covered);
	}
	if (s->waiting && s->pending_covered_ns <= covered)
		s->waiting = 0;
	if (s->copying && s->copy_covered_ns <= covered)
		s->copying = 0;
	return 0;
}

/* A thread waits for the operations issued on this very stream before `covered`; without
 * `waiting`, a query has found them pending. */
static __always_inline void stream_pending_itself(__u64 process, __u64 stream, __u64 covered,
						  __u32 waiting)
{
	struct stream *s = stream_find(process, stream);

	if (!s || s->pending_covered_ns > covered)
		return;
	s->pending_covered_ns = covered;
	s->pending_boot_ns = bpf_ktime_get_boot_ns();
	s->waiting = waiting;
}

/* The same for a stream and for those that it waits for. */
__noinline int stream_pending(__u64 process, __u64 stream, __u64 covered, __u32 waiting)
{
	struct stream *s = stream_find(process, stream);

	if (!s)
		return 0;
	stream_pending_itself(process, stream, covered, waiting);
	for (int i = 0; i < STREAM_AFTERS; i++) {
		struct stream_after *after = &s->after[i];

		if (after->stream && after->since_boot_ns <= covered)
			stream_pending_itself(process, after->stream, after->covered_boot_ns,
					      waiting);
	}
	return 0;
}

/* A thread copies on a stream, since `covered`; 0: no longer. */
static __always_inline void stream_copies_itself(__u64 process, __u64 stream, __u64 covered,
						 __u32 thread)
{
	struct stream *s = stream_find(process, stream);

	if (!s)
		return;
	/* The copy of another thread may still wait. */
	if (covered && (!s->copying || s->copying == thread)) {
		s->copy_covered_ns = covered;
		s->copying = thread;
	} else if (!covered && s->copying == thread) {
		s->copying = 0;
	}
}

/*
 * The same for a stream and for those that it waits for. It says nothing of the time after: to
 * pinned memory the call returns at once, whatever the stream does, so neither is anything done
 * then, nor was anything pending.
 */
__noinline int stream_copies(__u64 process, __u64 stream, __u64 covered, __u32 thread)
{
	struct stream *s = stream_find(process, stream);

	if (!s)
		return 0;
	stream_copies_itself(process, stream, covered, thread);
	for (int i = 0; i < STREAM_AFTERS; i++) {
		struct stream_after *after = &s->after[i];

		if (!after->stream || (covered && after->since_boot_ns > covered))
			continue;
		stream_copies_itself(process, after->stream, covered ? after->covered_boot_ns : 0,
				     thread);
	}
	return 0;
}

/* A stream has done the operations issued before `covered`, and so have the streams that
 * it waited for. */
__noinline int stream_done(__u64 process, __u64 stream, __u64 covered)
{
	struct stream *s = stream_find(process, stream);

	if (!s)
		return 0;
	stream_done_itself(process, stream, covered);
	for (int i = 0; i < STREAM_AFTERS; i++) {
		struct stream_after *after = &s->after[i];

		if (after->stream && after->since_boot_ns <= covered)
			stream_done_itself(process, after->stream, after->covered_boot_ns);
	}
	return 0;
}

/* Returns the stream of a process with that number if it belongs to the context, else 0. A
 * context that is not known, because it was current before the attach, is 0 and matches any. */
static __always_inline __u64 context_stream(__u64 process, __u64 context, struct nccl_process *p,
					    __u32 i)
{
	struct stream *s = stream_find(process, p->stream[i]);

	if (!s || (s->context && context && s->context != context))
		return 0;
	return p->stream[i];
}

/* All streams of a context have done the operations issued before `covered`. */
__noinline int context_done(__u64 process, __u64 context, __u64 covered)
{
	struct nccl_process *p = bpf_map_lookup_elem(&nccl_processes, &process);
	__u64 stream;

	if (!p)
		return 0;
	for (__u32 i = 0; i < PROCESS_STREAMS; i++) {
		if (i >= p->streams)
			break;
		stream = context_stream(process, context, p, i);
		if (stream)
			stream_done(process, stream, covered);
	}
	return 0;
}

/* A thread waits for all streams of a context. */
__noinline int context_pending(__u64 process, __u64 context, __u64 covered, __u32 waiting)
{
	struct nccl_process *p = bpf_map_lookup_elem(&nccl_processes, &process);
	__u64 stream;

	if (!p)
		return 0;
	for (__u32 i = 0; i < PROCESS_STREAMS; i++) {
		if (i >= p->streams)
			break;
		stream = context_stream(process, context, p, i);
		if (stream)
			stream_pending(process, stream, covered, waiting);
	}
	return 0;
}

/* An event was recorded on a stream, in a call that was entered at `boot_ns`. */
static __noinline int event_recorded(__u64 process, __u64 event, __u64 stream, __u64 boot_ns)
{
	struct stream_key key = { .process = process, .stream = event };
	struct recorded recorded = { .stream = stream, .boot_ns = boot_ns };

	if (!stream_find(process, stream))
		bpf_map_delete_elem(&recorded_by_event, &key);
	else if (bpf_map_lookup_elem(&recorded_by_event, &key) ||
		 QUOTA_COUNT(QUOTA_EVENTS, NEW_EVENTS))
		bpf_map_update_elem(&recorded_by_event, &key, &recorded, BPF_ANY);
	return 0;
}

static __noinline int event_done(__u64 process, __u64 event)
{
	struct stream_key key = { .process = process, .stream = event };
	struct recorded *r = bpf_map_lookup_elem(&recorded_by_event, &key);

	if (r)
		stream_done(process, r->stream, r->boot_ns);
	return 0;
}

static __noinline int event_pending(__u64 process, __u64 event, __u32 waiting)
{
	struct stream_key key = { .process = process, .stream = event };
	struct recorded *r = bpf_map_lookup_elem(&recorded_by_event, &key);

	if (r)
		stream_pending(process, r->stream, r->boot_ns, waiting);
	return 0;
}

/* A stream will wait for an event. */
static __noinline int stream_waits(struct thread *t, __u64 stream, __u64 event, __u64 boot_ns)
{
	struct stream_key key = { .stream = event };
	struct recorded *r;
	struct stream *s;
	__u64 capture;
	__s32 device;
	__u32 n;

	if (!t)
		return 0;
	key.process = t->process;
	r = bpf_map_lookup_elem(&recorded_by_event, &key);
	if (!r || r->stream == stream)
		return 0;
	s = stream_find(t->process, stream);
	if (!s)
		s = stream_add(t->process, stream, context_current(t, &device));
	if (!s)
		return 0;
	capture = stream_captured(t->process, r->stream);
	if (capture)
		s->capture = capture;
	n = STREAM_AFTERS;
	for (__u32 i = 0; i < STREAM_AFTERS; i++)
		if (s->after[i].stream == r->stream)
			n = i;
	if (n == STREAM_AFTERS)
		n = s->afters++ & (STREAM_AFTERS - 1);
	barrier_var(n);
	if (n < STREAM_AFTERS) {
		s->after[n].since_boot_ns = boot_ns;
		s->after[n].covered_boot_ns = r->boot_ns;
		s->after[n].stream = r->stream;
	}
	return 0;
}

#endif
