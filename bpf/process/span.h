/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_SPAN_H
#define GPU_GADGETS_PROCESS_SPAN_H

#include "program/drops.h"

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

/* How the variable's address is found. Go mirror: operators/attach/spans. */
enum span_access {
	SPAN_STATIC = 1, /* at: offset from the thread pointer */
	SPAN_OFFSET,	 /* at: address of a word with that offset (TPOFF64, TPREL) */
	SPAN_INDEX,	 /* at: address of {module, offset} (DTPMOD64, DTPMOD) */
	SPAN_DESCRIPTOR, /* at: address of {function, argument} (TLSDESC) */
};

struct span_source {
	__u64 start_stack; /* randomised at exec: identifies the address space */
	__u64 at;
	__u64 offset; /* of SPAN_INDEX, unless it is SPAN_OFFSET_BESIDE */
	__u32 access; /* enum span_access */
	__u32 pad;
};

#define SPAN_OFFSET_BESIDE (~0ULL) /* the second of the two words has the offset */

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

/*
 * ------------------------------------------------- thread-local storage of glibc
 * sysdeps/{x86_64,aarch64}/nptl/tls.h and dl-tlsdesc.h of glibc 2.17 to 2.42.
 */
#if defined(__TARGET_ARCH_arm64)
#define SPAN_TP(task) ((task)->thread.uw.tp_value)
#define SPAN_DTV_AT 0 /* tcbhead_t.dtv */
#else
#define SPAN_TP(task) ((task)->thread.fsbase)
#define SPAN_DTV_AT 8
#endif
/* dtv_t: {value, what to free}. dtv[-1].counter is the number of entries. */
#define SPAN_DTV_SLOT 16
#define SPAN_DTV_NONE (~0ULL) /* TLS_DTV_UNALLOCATED: the thread has not used it yet */
/* A descriptor's argument is an offset from the thread pointer, or an address. No
 * static block is that large, and nothing is mapped that low (vm.mmap_min_addr). */
#define SPAN_STATIC_LOWEST (-(1LL << 30))
#define SPAN_STATIC_HIGHEST 65536LL

/* The record's head; the rest is not read. */
struct span_record {
	__u8 trace_id[16];
	__u64 span_id; /* bytes in the order of the W3C's text */
	__u8 valid;    /* 1; any other value is invalid */
	__u8 trace_flags;
	__u16 attributes_bytes;
} __attribute__((packed));

_Static_assert(sizeof(struct span_record) == 28, "OTEP 4947");

static __always_inline long span_copy(void *to, __u32 bytes, __u64 address, bool may_sleep)
{
	long err = bpf_probe_read_user(to, bytes, (void *)address);

	if (err && may_sleep)
		err = bpf_copy_from_user(to, bytes, (void *)address);
	return err;
}

/* Returns the address of a module's variable in the thread, 0 if it is not allocated yet,
 * or -errno. */
static __always_inline long span_in_module(__u64 *address, __u64 tp, __u64 module,
					   __u64 offset, bool may_sleep)
{
	__u64 dtv, count, block;

	*address = 0;
	if (span_copy(&dtv, sizeof(dtv), tp + SPAN_DTV_AT, may_sleep) ||
	    span_copy(&count, sizeof(count), dtv - SPAN_DTV_SLOT, may_sleep))
		return -EFAULT;
	/* The table grows when the thread first uses a newer module. */
	if (!module || module > count)
		return 0;
	if (span_copy(&block, sizeof(block), dtv + module * SPAN_DTV_SLOT, may_sleep))
		return -EFAULT;
	if (block && block != SPAN_DTV_NONE)
		*address = block + offset;
	return 0;
}

static __always_inline long span_variable(__u64 *address, const struct span_source *s, __u64 tp,
					  bool may_sleep)
{
	__u64 word[2];

	*address = 0;
	switch (s->access) {
	case SPAN_STATIC:
		*address = tp + s->at;
		return 0;
	case SPAN_OFFSET:
		if (span_copy(word, 8, s->at, may_sleep))
			return -EFAULT;
		*address = tp + word[0];
		return 0;
	case SPAN_INDEX:
		if (span_copy(word, 16, s->at, may_sleep))
			return -EFAULT;
		if (s->offset != SPAN_OFFSET_BESIDE)
			word[1] = s->offset;
		return span_in_module(address, tp, word[0], word[1], may_sleep);
	case SPAN_DESCRIPTOR:
		if (span_copy(word, 16, s->at, may_sleep))
			return -EFAULT;
		if (!word[1])
			return 0; /* not relocated yet */
		if ((__s64)word[1] > SPAN_STATIC_LOWEST && (__s64)word[1] < SPAN_STATIC_HIGHEST) {
			*address = tp + word[1];
			return 0;
		}
		if (span_copy(word, 16, word[1], may_sleep))
			return -EFAULT;
		return span_in_module(address, tp, word[0], word[1], may_sleep);
	}
	return -EINVAL;
}

static __noinline __u64 span_read(const struct span_source *source, __u64 tp, bool may_sleep)
{
	struct span_record record;
	__u64 variable, pointer;

	if (!source || span_variable(&variable, source, tp, may_sleep))
		goto unreadable;
	if (!variable)
		return 0;
	if (span_copy(&pointer, sizeof(pointer), variable, may_sleep))
		goto unreadable;
	if (!pointer)
		return 0; /* no context is attached */
	if (span_copy(&record, sizeof(record), pointer, may_sleep))
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
	return span_read(source, SPAN_TP(task), may_sleep);
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
