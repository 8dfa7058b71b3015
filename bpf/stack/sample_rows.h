/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_SAMPLE_ROWS_H
#define GPU_GADGETS_STACK_SAMPLE_ROWS_H

#include "program/drops.h"
#include "process/rows.h"
#include "process/span.h"

/*
 * sample_rows: how often each stack was met, by (process, thread, stack), and by span
 * where that was requested. As the rows of cuda_alloc, counters only grow and are read
 * without being cleared.
 */
#ifndef MAX_ROWS
#define MAX_ROWS 32768
#endif

struct row_key {
	__u64 process;
	__u64 stack; /* key of stacks_by_id; 0: [unknown] */
	__u32 tid;   /* 0: of all threads together */
	__u32 pad;
};

/* See memory/rows.h. */
struct span_row_key {
	struct row_key row;
	__u64 span; /* of a trace (process/span.h); 0: none */
};

struct row {
	__u64 samples;
	__u64 gil; /* of these, how many while the thread held the GIL */
};

/*
 * Row → counts, preallocated for interrupts (see stack/stack.h). Written by the sampling
 * programs, read by iter/bpf_map_elem. Entries of ended processes are deleted by
 * user space.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct row_key);
	__type(value, struct row);
} rows_by_stack SEC(".maps");

struct span_row {
	struct row row;
	__u64 born_boot_ns; /* a row that was deleted and came again has another */
};

/* As rows_by_stack, for what belongs to a span: see rows_by_span of memory/rows.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* see process/span.h */
	__type(key, struct span_row_key);
	__type(value, struct span_row);
} rows_by_span SEC(".maps");

/* A function of its own, whose stack is not added to that of what comes after it. */
static __noinline int row_process(struct task_struct *task, __u64 process)
{
	return process_remember(task, process);
}

static __always_inline struct row *row_of_span(struct span_row_key *key, struct task_struct *task)
{
	struct span_row *found = bpf_map_lookup_elem(&rows_by_span, key);
	struct span_row fresh = {};

	if (!found) {
		if (!row_process(task, key->row.process) ||
		    !QUOTA_TAKE_OF(task, QUOTA_SPANS, MAX_SPAN_ROWS))
			return 0;
		span_learn(key->row.process, key->span);
		fresh.born_boot_ns = bpf_ktime_get_boot_ns();
		bpf_map_update_elem(&rows_by_span, key, &fresh, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&rows_by_span, key);
	}
	return found ? &found->row : 0;
}

/* Counts one sample. */
static __always_inline void row_count(struct span_row_key *full, struct task_struct *task, bool gil)
{
	struct row_key *key = &full->row;
	struct row fresh = {};
	struct row *row = 0;

	if (span_ids && full->span) {
		row = row_of_span(full, task);
		if (!row)
			drop(DROP_SPANS_FULL);
	}
	if (!row)
		row = bpf_map_lookup_elem(&rows_by_stack, key);
	if (!row) {
		if (!row_process(task, key->process))
			return;
		if (QUOTA_TAKE_OF(task, QUOTA_ROWS, MAX_ROWS))
			bpf_map_update_elem(&rows_by_stack, key, &fresh, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&rows_by_stack, key);
	}
	if (!row) {
		drop(DROP_ROWS_FULL);
		return;
	}
	__sync_fetch_and_add(&row->samples, 1);
	if (gil)
		__sync_fetch_and_add(&row->gil, 1);
}

#endif
