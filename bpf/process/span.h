/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_SPAN_H
#define GPU_GADGETS_PROCESS_SPAN_H

#include "process/quota.h"
#include "program/drops.h"
#ifndef LINUX_5_10
#include "process/tls.h"
#endif

/*
 * span: the span of a trace that the current thread works on, as its tracing library
 * publishes it for readers outside of the process: OpenTelemetry's OTEP 4947, "Thread
 * Context", a thread-local pointer otel_thread_ctx_v1 to a record. User space finds
 * where a process has the variable (operators/attach/spans); nothing of what is read here is
 * trusted. The value is the id's 8 bytes as a number, first byte highest; 0: no span.
 *
 * For the current thread only: the record may be read while its thread does not run.
 */

#ifdef LINUX_5_10
/* Not supported there: fields of a task are read directly. */
#define span_ids false
static __always_inline void span_inherit(__u32 parent, __u32 child)
{
}

static __always_inline void span_gone(__u32 tgid)
{
}

static __always_inline __u64 span_current(struct task_struct *task, bool may_sleep)
{
	return 0;
}

static __always_inline int span_learn(__u64 process, __u64 span)
{
	return 0;
}
#else
/*
 * Set by the operator before the programs are loaded, as are the sizes of the maps; if it
 * is off, the verifier removes the code. ig recognises a constant by a second variable
 * with its prefix.
 */
const volatile bool span_ids = false; /* and the maps of spans have 1 entry */
const volatile bool gadget_var_span_ids = false;

/* Entries of a gadget's rows_by_span, as the operator makes it. */
#ifndef MAX_SPAN_ROWS
#define MAX_SPAN_ROWS 32768
#endif

/* How many attributes of a record are remembered, and how many bytes of each. */
#define SPAN_ATTRIBUTES 2
#define SPAN_VALUE_BYTES 64 /* a power of two, with a NUL */
#define SPAN_NO_KEY 255

struct span_source {
	__u64 start_stack; /* randomised at exec: identifies the address space */
	__u64 at;
	__u64 offset; /* of TLS_INDEX, unless it is TLS_OFFSET_BESIDE */
	__u32 access;  /* enum tls_access */
	__u8 keys[4]; /* of the attributes that are remembered; SPAN_NO_KEY: none */
};

/* BTF only describes types that a global refers to. */
const struct span_source *span_source_layout __attribute__((unused));

/*
 * tgid → where the process has its context. Written by user space when it has found
 * the variable, and at fork; read by the probes; deleted at exec and exit.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct span_source);
} span_source_by_tgid SEC(".maps");

static __always_inline void span_inherit(__u32 parent, __u32 child)
{
	struct span_source *source;

	if (!span_ids || parent == child)
		return;
	source = bpf_map_lookup_elem(&span_source_by_tgid, &parent);
	if (source && bpf_map_update_elem(&span_source_by_tgid, &child, source, BPF_ANY))
		drop(DROP_SPAN_SOURCES_FULL);
}

static __always_inline void span_gone(__u32 tgid)
{
	if (span_ids)
		bpf_map_delete_elem(&span_source_by_tgid, &tgid);
}

/* The record's head; the rest is not read. */
struct span_record {
	__u8 trace_id[16];
	__u64 span_id; /* bytes in the order of the W3C's text */
	__u8 valid;    /* 1; any other value is invalid */
	__u8 trace_flags;
	__u16 attributes_bytes;
} __attribute__((packed));

_Static_assert(sizeof(struct span_record) == 28, "OTEP 4947");

/* Copies the head of the thread's record, and returns where it is; 0: no context is attached. */
static __always_inline __u64 span_record(struct span_record *record,
					 const struct span_source *source, __u64 tp,
					 bool may_sleep)
{
	__u64 variable, pointer;

	if (tls_address(&variable, source->access, source->at, source->offset, tp, may_sleep))
		goto unreadable;
	if (!variable)
		return 0;
	if (tls_copy(&pointer, sizeof(pointer), variable, may_sleep))
		goto unreadable;
	if (!pointer)
		return 0;
	if (!tls_copy(record, sizeof(*record), pointer, may_sleep))
		return pointer;
unreadable:
	drop(DROP_SPAN_UNREADABLE);
	return 0;
}

static __noinline __u64 span_read(const struct span_source *source, __u64 tp, bool may_sleep)
{
	struct span_record record;

	if (!source || !span_record(&record, source, tp, may_sleep))
		return 0;
	return record.valid == 1 ? bpf_be64_to_cpu(record.span_id) : 0;
}

static __always_inline const struct span_source *span_source_of(struct task_struct *task)
{
	struct span_source *source;
	__u32 tgid = task->tgid;

	source = bpf_map_lookup_elem(&span_source_by_tgid, &tgid);
	/* Its address space may have changed by now. */
	if (!source || !task->mm || source->start_stack != task->mm->start_stack)
		return 0;
	return source;
}

/* Returns the span of the current thread, `task`; 0: none, or the process publishes none. */
static __always_inline __u64 span_current(struct task_struct *task, bool may_sleep)
{
	const struct span_source *source;

	if (!span_ids)
		return 0;
	source = span_source_of(task);
	return source ? span_read(source, TLS_TP(task), may_sleep) : 0;
}

struct span_facts_key {
	__u64 process; /* any process can publish any id */
	__u64 span;
};

struct span_facts {
	__u8 trace_id[16]; /* written last; 0: the rest is being written */
	char values[SPAN_ATTRIBUTES][SPAN_VALUE_BYTES]; /* the first bytes */
};

/*
 * Span → its trace and attributes, such as the route of the request. Written with the first row
 * of a span, if its tenant has room for that, and read by user space (operators/attach/spans), which
 * remembers it: by the time that newer spans have evicted one, its rows have been read many times.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* see above */
	__type(key, struct span_facts_key);
	__type(value, struct span_facts);
} span_facts_by_id SEC(".maps");

static const struct span_facts no_span_facts;

#define SPAN_MAX_ATTRIBUTES 16 /* of a record; later ones are not read */

/* Copies the attributes with the source's keys out of packed {key, length, value}. Of several
 * with one key the last one counts. */
static __always_inline void span_values(struct span_facts *facts, const struct span_source *source,
					__u64 at, __u32 bytes)
{
	for (int i = 0; i < SPAN_MAX_ATTRIBUTES; i++) {
		__u32 length, copied;
		__u8 head[2];

		if (bytes < sizeof(head) || tls_copy(head, sizeof(head), at, false))
			return;
		length = head[1];
		at += sizeof(head);
		bytes -= sizeof(head);
		if (bytes < length)
			return;
		copied = length < SPAN_VALUE_BYTES - 1 ? length : SPAN_VALUE_BYTES - 1;
		for (int k = 0; k < SPAN_ATTRIBUTES; k++) {
			if (head[0] != source->keys[k] || head[0] == SPAN_NO_KEY)
				continue;
			__builtin_memset(facts->values[k], 0, SPAN_VALUE_BYTES);
			barrier_var(copied);
			copied &= SPAN_VALUE_BYTES - 1; /* for the verifier of Linux 6.1 */
			if (copied)
				tls_copy(facts->values[k], copied, at, false);
		}
		at += length;
		bytes -= length;
	}
}

/*
 * Remembers the trace and the attributes of a span that the current thread is in, at its first
 * row. It does nothing if the thread is in another span by now. The record was read a moment ago,
 * so that its page is there. A global function: the verifier follows it once.
 */
__noinline int span_learn(__u64 process, __u64 span)
{
	struct span_facts_key key = { .process = process, .span = span };
	struct task_struct *task = bpf_get_current_task_btf();
	const struct span_source *source;
	struct span_record record;
	struct span_facts *facts;
	__u64 at;

	if (!span_ids || !span || bpf_map_lookup_elem(&span_facts_by_id, &key))
		return 0;
	source = span_source_of(task);
	if (!source)
		return 0;
	at = span_record(&record, source, TLS_TP(task), false);
	if (!at || record.valid != 1 || bpf_be64_to_cpu(record.span_id) != span)
		return 0;
	/* In place: the stack is short. */
	bpf_map_update_elem(&span_facts_by_id, &key, &no_span_facts, BPF_NOEXIST);
	facts = bpf_map_lookup_elem(&span_facts_by_id, &key);
	if (!facts)
		return 0;
	span_values(facts, source, at + sizeof(record), record.attributes_bytes);
	barrier();
	__builtin_memcpy(facts->trace_id, record.trace_id, sizeof(facts->trace_id));
	return 0;
}
#endif

#define SPAN_TEXT_BYTES 24 /* 16 digits and a NUL; no padding after it */

/* The id in hexadecimal, as other tools write it; empty for none. */
static __always_inline void span_text(char *to, __u64 span)
{
	if (!span)
		return;
	for (int i = 0; i < 16; i++) {
		__u8 digit = (span >> (60 - 4 * i)) & 15;

		to[i] = digit + (digit < 10 ? '0' : 'a' - 10);
	}
}

#endif
