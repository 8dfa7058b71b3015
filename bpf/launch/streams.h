/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_STREAMS_H
#define GPU_GADGETS_LAUNCH_STREAMS_H

#include "program/drops.h"
#include "process/process.h"

/*
 * streams: which stream an event belongs to, which streams are being captured
 * into a graph, and how many nodes a graph has. All are numbers of a process.
 */
#define MAX_STREAM_FACTS 65536
#define NEW_STREAM_FACTS 8192 /* of a tenant in a second */

enum stream_fact {
	EVENT_STREAM = 1, /* an event's stream: on which it was recorded last */
	EVENT_CAPTURE,	  /* the capture in which an event was recorded: when it began */
	STREAM_CAPTURE,	  /* the capture that a stream is part of: when it began */
	CAPTURE_NODES,	  /* nodes so far of the capture that began then */
	GRAPH_NODES,
	EXEC_NODES, /* of a CUgraphExec */
};

struct stream_key {
	__u64 process;
	__u64 handle;
	__u64 fact; /* enum stream_fact */
};

/* LRU: an evicted entry leads to an unknown value, never a wrong one: nodes are 0, a
 * stream is 0. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_STREAM_FACTS);
	__type(key, struct stream_key);
	__type(value, __u64);
} stream_facts SEC(".maps");

/* [0]: captures that have begun since attach; while it is 0, there are no lookups. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} captures_begun SEC(".maps");

static __always_inline __u64 *stream_fact(__u64 process, __u64 handle, enum stream_fact fact)
{
	struct stream_key key = { .process = process, .handle = handle, .fact = fact };

	return bpf_map_lookup_elem(&stream_facts, &key);
}

static __always_inline void stream_learn(__u64 process, __u64 handle, enum stream_fact fact,
					 __u64 value)
{
	struct stream_key key = { .process = process, .handle = handle, .fact = fact };

	if (bpf_map_lookup_elem(&stream_facts, &key) || QUOTA_COUNT(QUOTA_FACTS, NEW_STREAM_FACTS))
		bpf_map_update_elem(&stream_facts, &key, &value, BPF_ANY);
}

static __always_inline void stream_forget(__u64 process, __u64 handle, enum stream_fact fact)
{
	struct stream_key key = { .process = process, .handle = handle, .fact = fact };

	bpf_map_delete_elem(&stream_facts, &key);
}

/* CU_STREAM_PER_THREAD and hipStreamPerThread. In rows it is this number for all threads. */
#define STREAM_PER_THREAD 2

/* A stream as the key of its capture: each thread has its own default stream. */
static __always_inline __u64 capture_key(__u64 stream)
{
	return stream == STREAM_PER_THREAD ? bpf_get_current_pid_tgid() << 32 | stream : stream;
}

static __always_inline __u64 *captures(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&captures_begun, &zero);
}

/*
 * The node count of the capture that the stream is part of, and when that began; NULL: none. A
 * stream that joined a capture remains so when it has ended, but that has no count any more.
 */
static __always_inline __u64 *stream_captured(__u64 process, __u64 stream, __u64 *capture)
{
	__u64 *begun = captures(), *since;

	if (!begun || !*begun)
		return 0;
	since = stream_fact(process, capture_key(stream), STREAM_CAPTURE);
	if (!since)
		return 0;
	*capture = *since;
	return stream_fact(process, *capture, CAPTURE_NODES);
}

/* A lower bound of the nodes of a capture of which some launches were not seen. */
#define CAPTURE_NOT_COUNTED (1ULL << 63)

/* A capture adds its nodes to those of `graph`, or, where that is 0, becomes a new one. */
static __always_inline void capture_begin(__u64 process, __u64 stream, __u64 graph)
{
	__u64 *begun = captures(), now = bpf_ktime_get_boot_ns(), *nodes;

	nodes = graph ? stream_fact(process, graph, GRAPH_NODES) : 0;
	stream_learn(process, now, CAPTURE_NODES,
		     (nodes ? *nodes : 0) | (window_in_use() ? CAPTURE_NOT_COUNTED : 0));
	stream_learn(process, capture_key(stream), STREAM_CAPTURE, now);
	if (begun)
		__sync_fetch_and_add(begun, 1);
}

/* cuEventRecord */
static __always_inline void event_recorded(__u64 process, __u64 event, __u64 stream)
{
	__u64 *begun = captures(), capture;

	stream_learn(process, event, EVENT_STREAM, stream);
	if (!begun || !*begun)
		return;
	if (stream_captured(process, stream, &capture))
		stream_learn(process, event, EVENT_CAPTURE, capture);
	else
		stream_forget(process, event, EVENT_CAPTURE);
}

/* cuStreamWaitEvent: a stream that waits for an event of a capture joins the capture. */
static __always_inline void capture_join(__u64 process, __u64 stream, __u64 event)
{
	__u64 *begun = captures(), *since;

	if (!begun || !*begun)
		return;
	since = stream_fact(process, event, EVENT_CAPTURE);
	if (since && stream_fact(process, *since, CAPTURE_NODES))
		stream_learn(process, capture_key(stream), STREAM_CAPTURE, *since);
}

/* The capture that a stream began has become this graph, or, where it is 0, none. */
static __always_inline void capture_end(__u64 process, __u64 stream, __u64 graph)
{
	__u64 capture, *nodes = stream_captured(process, stream, &capture);

	/* Its handle may have been that of a graph that is no more. */
	stream_forget(process, graph, GRAPH_NODES);
	if (!nodes)
		return;
	if (graph && *nodes < CAPTURE_NOT_COUNTED && !window_in_use())
		stream_learn(process, graph, GRAPH_NODES, *nodes);
	stream_forget(process, capture, CAPTURE_NODES);
	stream_forget(process, capture_key(stream), STREAM_CAPTURE);
}

/*
 * A graph, or what runs it, has as many nodes as the graph of which it was made: 0 for a new one,
 * or where that is not known. Its handle may have been that of another one that is no more.
 */
static __always_inline void graph_made(__u64 process, __u64 handle, enum stream_fact fact, __u64 of)
{
	__u64 *nodes = of ? stream_fact(process, of, GRAPH_NODES) : 0;

	if (nodes)
		stream_learn(process, handle, fact, *nodes);
	else
		stream_forget(process, handle, fact);
}

static __always_inline void graph_node(__u64 process, __u64 graph)
{
	__u64 *nodes = stream_fact(process, graph, GRAPH_NODES);

	if (nodes)
		__sync_fetch_and_add(nodes, 1);
	else
		stream_learn(process, graph, GRAPH_NODES, 1);
}

#endif
