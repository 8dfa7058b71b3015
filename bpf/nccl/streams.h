/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_STREAMS_H
#define GPU_GADGETS_NCCL_STREAMS_H

#include "call/context.h"
#include "nccl/events.h"

/*
 * streams: which operations were issued on which stream, and on which stream an event was
 * recorded. waits.h derives completion from waits for them.
 */
#define MAX_STREAMS 32768
#define MAX_EVENTS 32768
#define NEW_EVENTS 4096		/* of a tenant in a second */
#define STREAM_COMMUNICATORS 32 /* communicators followed per stream */
#define STREAM_AFTERS 4		/* waits for other streams; a newer one covers older ones */
#define PROCESS_STREAMS 16

struct stream_key {
	__u64 process;
	__u64 stream; /* or event */
};

struct stream_after {
	__u64 stream;
	__u64 covered_boot_ns; /* operations issued there before this … */
	__u64 since_boot_ns;   /* … are done once this stream has done its work as of then */
};

struct stream {
	__u64 context; /* 0: unknown yet */
	__u64 done_ns; /* operations issued before it are known to be done */
	__u64 capture; /* the stream whose capture it is part of, or was; 0: none */
	/* Not all operations issued before `covered` were done at pending_boot_ns, by a
	 * query, or are now, while a thread waits for them. */
	__u64 pending_covered_ns, pending_boot_ns;
	__u32 waiting; /* the thread; 0: none */
	__u32 copying; /* a thread in a copy to the host, which may wait for the operations … */
	__u64 copy_covered_ns; /* … issued before; 0: none */
	__u32 communicators;
	__u32 afters; /* total; the next index, modulo STREAM_AFTERS */
	__u64 communicator[STREAM_COMMUNICATORS];
	struct stream_after after[STREAM_AFTERS];
};

/*
 * (process, stream) → the communicators that have issued on it. Written at an operation
 * or at a wait for one; read by waits. As communicators_by_handle.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_STREAMS);
	__type(key, struct stream_key);
	__type(value, struct stream);
} streams_by_handle SEC(".maps");

struct recorded {
	__u64 stream;
	__u64 boot_ns; /* when the recording call was entered */
};

/* (process, event) → where and when it was recorded. LRU: programs do not always destroy events. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_EVENTS);
	__type(key, struct stream_key);
	__type(value, struct recorded);
} recorded_by_event SEC(".maps");

struct nccl_process {
	__u32 streams;
	__u32 pad;
	__u64 stream[PROCESS_STREAMS];
};

/* Process → its streams with operations, for waits that cover all of them. Waits of a
 * process without an entry are ignored. As communicators_by_handle. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, __u64);
	__type(value, struct nccl_process);
} nccl_processes SEC(".maps");

/* [0]: zeroes, for new entries, which are too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream);
} stream_unused SEC(".maps");
_Static_assert(sizeof(struct nccl_process) <= sizeof(struct stream), "zeroes for both");

/*
 * A stream as a key: handles are addresses; the default streams are numbers, and every
 * context, or with per_thread every thread, has its own.
 */
static __always_inline __u64 nccl_stream_key(struct thread *t, __u64 stream, bool per_thread)
{
	__s32 device;

	if (stream > 2)
		return stream;
	if (stream == 2 || (stream == 0 && per_thread))
		return bpf_get_current_pid_tgid() << 32 | 2;
	return context_current(t, &device) | 1;
}

static __always_inline bool nccl_process_known(__u64 process)
{
	return bpf_map_lookup_elem(&nccl_processes, &process) != 0;
}

static __noinline int nccl_process_add(__u64 process, __u64 stream)
{
	struct nccl_process *p;
	__u32 n, zero = 0;
	void *unused;

	p = bpf_map_lookup_elem(&nccl_processes, &process);
	if (!p) {
		unused = bpf_map_lookup_elem(&stream_unused, &zero);
		if (!unused)
			return 0;
		bpf_map_update_elem(&nccl_processes, &process, unused, BPF_NOEXIST);
		p = bpf_map_lookup_elem(&nccl_processes, &process);
		if (!p) {
			drop(DROP_PROCESSES_FULL);
			return 0;
		}
	}
	n = p->streams;
	if (n >= PROCESS_STREAMS) {
		drop(DROP_STREAMS_FULL);
		return 0;
	}
	p->stream[n & (PROCESS_STREAMS - 1)] = stream;
	p->streams = n + 1;
	return 0;
}

static __noinline struct stream *stream_new(__u64 process, __u64 stream, __u64 context)
{
	struct stream_key key = { .process = process, .stream = stream };
	__u32 zero = 0;
	void *unused = bpf_map_lookup_elem(&stream_unused, &zero);
	struct stream *s;

	if (!unused)
		return 0;
	bpf_map_update_elem(&streams_by_handle, &key, unused, BPF_NOEXIST);
	nccl_process_add(process, stream);
	s = bpf_map_lookup_elem(&streams_by_handle, &key);
	if (s)
		s->context = context;
	return s;
}

/* As stream_new(), if there is room for the process. */
static __always_inline struct stream *stream_add(__u64 process, __u64 stream, __u64 context)
{
	struct stream *s = 0;

	if (QUOTA_TAKE(QUOTA_STREAMS, MAX_STREAMS))
		s = stream_new(process, stream, context);
	if (!s)
		drop(DROP_STREAMS_FULL);
	return s;
}

static __always_inline struct stream *stream_find(__u64 process, __u64 stream)
{
	struct stream_key key = { .process = process, .stream = stream };

	return bpf_map_lookup_elem(&streams_by_handle, &key);
}

/* Returns the stream whose capture a stream is part of; 0: none. One that joined a capture remains so when
 * that has ended, which its origin knows. */
static __noinline __u64 stream_captured(__u64 process, __u64 stream)
{
	struct stream *s = stream_find(process, stream);
	__u64 origin;

	if (!s || !s->capture)
		return 0;
	origin = s->capture;
	if (origin == stream)
		return origin;
	s = stream_find(process, origin);
	return s && s->capture == origin ? origin : 0;
}

/* A capture of a stream has begun, or, with `captures` 0, ends. */
static __noinline int stream_capture(struct thread *t, __u64 stream, __u32 captures)
{
	struct stream *s;
	__s32 device;

	if (!t)
		return 0;
	s = stream_find(t->process, stream);
	if (!s && captures)
		s = stream_add(t->process, stream, context_current(t, &device));
	if (s)
		s->capture = captures ? stream : 0;
	return 0;
}

/* A communicator issues an operation on a stream. */
static __noinline int stream_issue(struct thread *t, __u64 stream, __u64 communicator)
{
	struct communicator *c;
	struct stream *s;
	__s32 device;
	__u32 n;

	if (!t)
		return 0;
	s = stream_find(t->process, stream);
	if (!s)
		s = stream_add(t->process, stream, context_current(t, &device));
	if (!s)
		return 0;
	if (!s->context)
		s->context = context_current(t, &device);
	for (int i = 0; i < STREAM_COMMUNICATORS; i++) {
		if (i >= s->communicators)
			break;
		if (s->communicator[i] == communicator)
			return 0;
	}
	n = s->communicators;
	if (n >= STREAM_COMMUNICATORS) {
		/* Programs replace communicators, so the oldest one makes room. */
		c = communicator_find(t->process, s->communicator[0]);
		if (c && c->completed_seq < c->seq)
			drop(DROP_STREAMS_FULL);
		for (int i = 0; i < STREAM_COMMUNICATORS - 1; i++)
			s->communicator[i] = s->communicator[i + 1];
		n = STREAM_COMMUNICATORS - 1;
		s->communicators = n;
	}
	s->communicator[n & (STREAM_COMMUNICATORS - 1)] = communicator;
	s->communicators = n + 1;
	return 0;
}

#endif
