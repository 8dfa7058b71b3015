/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CUDA_ROWS_H
#define GPU_GADGETS_CUDA_ROWS_H

#include "cuda_apis.h"
#include "drops.h"
#include "process_rows.h"
#include "thread.h"

/*
 * cuda_rows: the sums that user space reads, by (process, stack, kind, device).
 *
 * Counters only grow and are read without being cleared: a map that is drained
 * loses what a program adds to an element between the copy and the delete.
 */
#ifndef MAX_ROWS
#define MAX_ROWS 16384
#endif
#define MAX_UNKNOWN_ROWS 4096

#define KIND_NAME_BYTES 8

static const char kind_names[8][KIND_NAME_BYTES] = ALLOC_KIND_NAMES;

/* Writes the kind's name as users read it. */
static __always_inline void kind_name(char *to, __u32 kind)
{
	bpf_probe_read_kernel(to, KIND_NAME_BYTES, kind_names[kind & 7]);
}

struct row_key {
	__u64 process;
	__u64 stack; /* key of stacks_by_id; 0: [unknown] */
	__u32 kind;  /* enum alloc_kind */
	__s32 device;
};

struct row {
	__u64 alloc_bytes, alloc_objects;
	__u64 freed_bytes, freed_objects;	/* by a call that named the pointer */
	__u64 implicit_bytes, implicit_objects; /* with a context */
	__u64 inuse_bytes, peak_bytes;
};

/*
 * Row → sums. Written by the exit probes, read by iter/bpf_map_elem. Entries of
 * ended processes are deleted by user space. Size: stacks × kinds is small; a
 * node's workloads make thousands of rows, at 96 bytes each.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct row_key);
	__type(value, struct row);
} rows_by_stack SEC(".maps");

/* As rows_by_stack, for bytes whose stack or row did not fit: stack is 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_UNKNOWN_ROWS);
	__type(key, struct row_key);
	__type(value, struct row);
} unknown_rows SEC(".maps");

/* The row of `key`, made at its first use. NULL: there is no room. */
static __always_inline struct row *row_of(struct row_key *key)
{
	struct row fresh = {};
	struct row *row;

	if (key->stack) {
		row = bpf_map_lookup_elem(&rows_by_stack, key);
		if (row)
			return row;
		process_remember(bpf_get_current_task_btf(), key->process);
		bpf_map_update_elem(&rows_by_stack, key, &fresh, BPF_NOEXIST);
		return bpf_map_lookup_elem(&rows_by_stack, key);
	}
	row = bpf_map_lookup_elem(&unknown_rows, key);
	if (row)
		return row;
	process_remember(bpf_get_current_task_btf(), key->process);
	bpf_map_update_elem(&unknown_rows, key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&unknown_rows, key);
}

/*
 * As row_of(), but when the row does not fit, key->stack becomes 0 and the row
 * is [unknown]'s. NULL: not even that fits; the drop has the bytes.
 */
static __always_inline struct row *row_of_alloc(struct row_key *key, __u64 size)
{
	struct row *row = row_of(key);

	if (!row && key->stack) {
		drop(DROP_ROWS_FULL);
		key->stack = 0;
		row = row_of(key);
	}
	if (!row)
		drop_bytes(DROP_UNKNOWN_FULL, size);
	return row;
}

static __always_inline void row_alloc(struct row *row, __u64 size)
{
	__u64 now, peak;

	__sync_fetch_and_add(&row->alloc_bytes, size);
	__sync_fetch_and_add(&row->alloc_objects, 1);
	now = __sync_fetch_and_add(&row->inuse_bytes, size) + size;
	/* Others may raise it meanwhile; 8 losses in a row need 8 such threads. */
	for (int i = 0; i < 8; i++) {
		peak = row->peak_bytes;
		if (peak >= now || __sync_val_compare_and_swap(&row->peak_bytes, peak, now) == peak)
			break;
	}
}

static __always_inline void row_key_of(struct row_key *key, __u64 process,
				       const struct live *live)
{
	key->process = process;
	key->stack = live->stack;
	key->kind = live->kind;
	key->device = live->device;
}

/* Takes a freed allocation out of its row. */
static __always_inline void row_free(__u64 process, const struct live *live, bool implicit)
{
	struct row_key key;
	struct row *row;

	row_key_of(&key, process, live);
	if (key.stack)
		row = bpf_map_lookup_elem(&rows_by_stack, &key);
	else
		row = bpf_map_lookup_elem(&unknown_rows, &key);
	if (!row)
		return; /* deleted: user space had seen the process end */
	if (implicit) {
		__sync_fetch_and_add(&row->implicit_bytes, live->size_bytes);
		__sync_fetch_and_add(&row->implicit_objects, 1);
	} else {
		__sync_fetch_and_add(&row->freed_bytes, live->size_bytes);
		__sync_fetch_and_add(&row->freed_objects, 1);
	}
	__sync_fetch_and_add(&row->inuse_bytes, -live->size_bytes);
}

#endif
