/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_ROWS_H
#define GPU_GADGETS_MEMORY_ROWS_H

#include "memory/inflight.h"
#include "program/drops.h"
#include "process/rows.h"
#include "process/span.h"
#include "call/thread.h"
#ifdef LINUX_5_10
#include "memory/instance.h"
#else
#include "nccl/memory/communicators.h"
#endif

/*
 * rows: the sums that user space reads, by (process, stack, kind, device), and
 * by span where that was requested.
 *
 * Counters only grow and are read without being cleared: a map that is drained
 * loses what a program adds to an element between the copy and the delete.
 */
#ifndef MAX_ROWS
#ifdef LINUX_5_10
#define MAX_ROWS 65536 /* a row for each context that a stack allocated in */
#else
#define MAX_ROWS 32768
#endif
#endif
#define MAX_UNKNOWN_ROWS 4096

#define KIND_NAME_BYTES 8

#define KIND_SLOTS 16
_Static_assert(ALLOC_KIND_COUNT <= KIND_SLOTS, "the next power of two, please");

static const char kind_names[KIND_SLOTS][KIND_NAME_BYTES] = ALLOC_KIND_NAMES;

/* Writes the kind's name as users read it. */
static __always_inline void kind_name(char *to, __u32 kind)
{
	bpf_probe_read_kernel(to, KIND_NAME_BYTES, kind_names[kind & (KIND_SLOTS - 1)]);
}

struct row_key {
	__u64 process;
	__u64 stack; /* key of stacks_by_id; 0: [unknown] */
	__u32 kind;  /* enum alloc_kind */
	__s32 device;
#ifdef LINUX_5_10
	__u64 instance; /* of the context; see memory/instance.h */
#endif
};

/* A row is looked up by the first part alone where there is no span, so that spans
 * cost nothing when they are not requested. */
struct span_row_key {
	struct row_key row;
	__u64 span; /* of a trace (process/span.h); 0: none */
};

struct row {
	__u64 alloc_bytes, alloc_objects;
	__u64 freed_bytes, freed_objects;	/* by a call that named the pointer */
	__u64 implicit_bytes, implicit_objects; /* with a context */
	__u64 inuse_bytes, peak_bytes;
#if MEMORY_HELD
	__u64 held_bytes; /* of those in use */
#endif
};

/*
 * Row → sums. Written by the exit probes, read by iter/bpf_map_elem. Entries of
 * ended processes are deleted by user space. Size: stacks × kinds is small; a
 * node's workloads make thousands of rows, at 96 bytes each.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct row_key);
	__type(value, struct row);
} rows_by_stack SEC(".maps");

/* As rows_by_stack, for bytes whose stack or row did not fit: stack is 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_UNKNOWN_ROWS);
	__type(key, struct row_key);
	__type(value, struct row);
} unknown_rows SEC(".maps");

#ifndef LINUX_5_10
/* Follow what was requested of PyTorch's pool (torch/requested.h); set by the operator torch. */
const volatile bool torch_requested = false;
const volatile bool gadget_var_torch_requested = false;

/* Of what a row of tensors has in use, of blocks whose request is known. */
struct requests {
	__u64 requested_bytes, rounding_bytes;
};

/*
 * Row → its requests. Written when a request comes and when its block is freed, read with the
 * row; deleted by user space with the row of its span, or when the process has ended. Beside the
 * rows, which would all be larger. A block without room in it has no known request.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1); /* the operator torch enlarges it */
	__type(key, struct span_row_key);
	__type(value, struct requests);
} requests_by_row SEC(".maps");

struct span_row {
	struct row row;
	__u64 born_boot_ns; /* a row that was deleted and came again has another */
};

/*
 * As rows_by_stack, for what belongs to a span. A map of its own, because spans start
 * and end by the thousand and must not evict the rows of stacks. User space deletes
 * rows of spans that hold nothing and have not changed for a while (operators/decode/reap).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1); /* see process/span.h */
	__type(key, struct span_row_key);
	__type(value, struct span_row);
} rows_by_span SEC(".maps");

static __noinline struct row *row_of_span(struct span_row_key *key)
{
	struct span_row fresh = {};
	struct span_row *found;

	if (!key)
		return 0;
	found = bpf_map_lookup_elem(&rows_by_span, key);
	if (!found) {
		if (!process_remember_current(key->row.process) ||
		    !QUOTA_TAKE(QUOTA_SPANS, MAX_SPAN_ROWS))
			return 0;
		span_learn(key->row.process, key->span);
		fresh.born_boot_ns = bpf_ktime_get_boot_ns();
		bpf_map_update_elem(&rows_by_span, key, &fresh, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&rows_by_span, key);
	}
	return found ? &found->row : 0;
}
#endif

/* What a row begins as. Not on the stack of the programs, which is short. */
static const struct row empty_row;

/* The row of `key`, made at its first use. NULL: there is no room. */
static __always_inline struct row *row_of(struct span_row_key *full)
{
	struct row_key *key = &full->row;
	struct row *row;

#ifndef LINUX_5_10
	if (span_ids && full->span)
		return row_of_span(full);
#endif
	if (key->stack) {
		row = bpf_map_lookup_elem(&rows_by_stack, key);
		if (row)
			return row;
		if (!process_remember_current(key->process))
			return 0;
		if (!QUOTA_TAKE(QUOTA_ROWS, MAX_ROWS))
			return 0;
		bpf_map_update_elem(&rows_by_stack, key, &empty_row, BPF_NOEXIST);
		return bpf_map_lookup_elem(&rows_by_stack, key);
	}
	row = bpf_map_lookup_elem(&unknown_rows, key);
	if (row)
		return row;
	if (!process_remember_current(key->process))
		return 0;
	if (!QUOTA_TAKE(QUOTA_UNKNOWN, MAX_UNKNOWN_ROWS))
		return 0;
	bpf_map_update_elem(&unknown_rows, key, &empty_row, BPF_NOEXIST);
	return bpf_map_lookup_elem(&unknown_rows, key);
}

/*
 * As row_of(), but when the row does not fit, the key's span becomes 0, and when that
 * does not fit, its stack: the row is [unknown]'s. NULL: not even that fits; the drop
 * has the bytes.
 */
static __always_inline struct row *row_of_alloc(struct span_row_key *key, __u64 size)
{
	struct row *row = row_of(key);

	if (!row && !process_has_room(key->row.process, size))
		return 0;
	if (span_ids && !row && key->span) {
		drop(DROP_SPANS_FULL);
		key->span = 0;
		row = row_of(key);
	}
	if (!row && key->row.stack) {
		drop(DROP_ROWS_FULL);
		key->row.stack = 0;
		row = row_of(key);
	}
	if (!row)
		drop_bytes(DROP_UNKNOWN_FULL, size);
	return row;
}

/* How many allocations one in the table of live ones counts as. */
static __always_inline __u64 live_objects(const struct live *live)
{
	return live->kind == KIND_TENSOR ? live->references : 1;
}

static __always_inline void row_alloc(struct row *row, __u64 size, __u64 objects)
{
	__u64 now;

	__sync_fetch_and_add(&row->alloc_bytes, size);
	__sync_fetch_and_add(&row->alloc_objects, objects);
#ifdef LINUX_5_10
	/* Without the old value: what others do at this very moment may count, too,
	 * and of two new peaks at the same moment the lower may win. */
	__sync_fetch_and_add(&row->inuse_bytes, size);
	now = row->inuse_bytes;
	if (row->peak_bytes < now)
		row->peak_bytes = now;
#else
	now = __sync_fetch_and_add(&row->inuse_bytes, size) + size;
	/* Others may raise it meanwhile; 8 losses in a row need 8 such threads. */
	for (int i = 0; i < 8; i++) {
		__u64 peak = row->peak_bytes;

		if (peak >= now || __sync_val_compare_and_swap(&row->peak_bytes, peak, now) == peak)
			break;
	}
#endif
}

static __always_inline void row_key_of(struct span_row_key *key, __u64 process,
				       const struct live *live)
{
	key->row.process = process;
	key->row.stack = live->stack;
	key->row.kind = live->kind;
	key->row.device = live->device;
#ifdef LINUX_5_10
	key->row.instance = live->context;
#endif
	key->span = live->span;
}

/* The row of what is alive or was. NULL: user space has seen the process end, and deleted it. */
static __always_inline struct row *row_find(const struct span_row_key *key)
{
#ifndef LINUX_5_10
	if (span_ids && key->span)
		return bpf_map_lookup_elem(&rows_by_span, key); /* starts with it */
#endif
	if (key->row.stack)
		return bpf_map_lookup_elem(&rows_by_stack, &key->row);
	return bpf_map_lookup_elem(&unknown_rows, &key->row);
}

/* Takes `size` freed bytes, of so many allocations, out of a row. */
static __always_inline void row_free_bytes(const struct span_row_key *key, __u64 size,
					   __u64 objects, bool implicit)
{
	struct row *row = row_find(key);

	if (!row)
		return;
	if (implicit) {
		__sync_fetch_and_add(&row->implicit_bytes, size);
		__sync_fetch_and_add(&row->implicit_objects, objects);
	} else {
		__sync_fetch_and_add(&row->freed_bytes, size);
		__sync_fetch_and_add(&row->freed_objects, objects);
	}
	__sync_fetch_and_add(&row->inuse_bytes, -size);
}

#ifndef LINUX_5_10
/* A tensor was freed whose request is known: live->handle. */
static __noinline int request_freed(__u64 process, const struct live *live)
{
	struct span_row_key key;
	struct requests *request;

	if (!live)
		return 0;
	row_key_of(&key, process, live);
	request = bpf_map_lookup_elem(&requests_by_row, &key);
	if (!request)
		return 0; /* its process has ended */
	__sync_fetch_and_add(&request->requested_bytes, -live->handle);
	__sync_fetch_and_add(&request->rounding_bytes, live->handle - live->size_bytes);
	return 0;
}
#endif

/* Takes it out of the sums of its owner, if it has one. */
static __always_inline void owner_free(__u64 process, __u32 owner, const struct span_row_key *key,
				       __u64 size, bool implicit)
{
#ifndef LINUX_5_10
	if (nccl_owners && owner)
		owner_freed(process, owner, OWNER_PLACE(key->row.kind, key->row.device), size,
			    implicit);
#endif
}

/* Takes a freed block of PyTorch's pool out of its row. It has no owner. */
static __always_inline void row_free_block(__u64 process, const struct live *live)
{
	struct span_row_key key;

	row_key_of(&key, process, live);
	row_free_bytes(&key, live->size_bytes, live_objects(live), false);
}

/* Takes a freed allocation out of its row. */
static __always_inline void row_free(__u64 process, const struct live *live, bool implicit)
{
	struct span_row_key key;

	row_key_of(&key, process, live);
	row_free_bytes(&key, live->size_bytes, live_objects(live), implicit);
	owner_free(process, live->owner, &key, live->size_bytes, implicit);
}

/* `more` bytes of an allocation of this row are held, or, negative, no longer. */
static __always_inline void row_hold(const struct span_row_key *key, __u64 more)
{
#if MEMORY_HELD
	struct row *row = row_find(key);

	if (row)
		__sync_fetch_and_add(&row->held_bytes, more);
#endif
}

#endif
