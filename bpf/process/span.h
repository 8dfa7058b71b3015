/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_SPAN_H
#define GPU_GADGETS_PROCESS_SPAN_H

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
#else
/*
 * Set by the operator before the programs are loaded, as are the sizes of the maps; if it
 * is off, the verifier removes the code. ig recognises a constant by a second variable
 * with its prefix.
 */
const volatile bool span_ids = false; /* and the maps of spans have 1 entry */
const volatile bool gadget_var_span_ids = false;

struct span_source {
	__u64 start_stack; /* randomised at exec: identifies the address space */
	__u64 at;
	__u64 offset; /* of TLS_INDEX, unless it is TLS_OFFSET_BESIDE */
	__u32 access; /* enum tls_access */
	__u32 pad;
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

static __noinline __u64 span_read(const struct span_source *source, __u64 tp, bool may_sleep)
{
	struct span_record record;
	__u64 variable, pointer;

	if (!source || tls_address(&variable, source->access, source->at, source->offset, tp,
				    may_sleep))
		goto unreadable;
	if (!variable)
		return 0;
	if (tls_copy(&pointer, sizeof(pointer), variable, may_sleep))
		goto unreadable;
	if (!pointer)
		return 0; /* no context is attached */
	if (tls_copy(&record, sizeof(record), pointer, may_sleep))
		goto unreadable;
	return record.valid == 1 ? bpf_be64_to_cpu(record.span_id) : 0;
unreadable:
	drop(DROP_SPAN_UNREADABLE);
	return 0;
}

/* Returns the span of the current thread, `task`; 0: none, or the process publishes none. */
static __always_inline __u64 span_current(struct task_struct *task, bool may_sleep)
{
	struct span_source *source;
	__u32 tgid = task->tgid;

	if (!span_ids)
		return 0;
	source = bpf_map_lookup_elem(&span_source_by_tgid, &tgid);
	/* Its address space may have changed by now. */
	if (!source || !task->mm || source->start_stack != task->mm->start_stack)
		return 0;
	return span_read(source, TLS_TP(task), may_sleep);
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
