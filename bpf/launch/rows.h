/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_ROWS_H
#define GPU_GADGETS_LAUNCH_ROWS_H

#include "launch/sample.h"
#include "process/rows.h"
#include "process/span.h"

/*
 * rows: the sums that user space reads, by (process, stack, function, kernel, direction,
 * result), and by span where that was requested. Like in rows of cuda_alloc, counters only
 * grow and are not cleared when read.
 */
#ifndef MAX_ROWS
#define MAX_ROWS 32768
#endif
#define MAX_UNKNOWN_ROWS 8192

struct row_key {
	__u64 process;
	__u64 stack;	/* key of stacks_by_id; 0: [unknown], or rows without stacks */
	__u64 function; /* see launch/names.h */
	__u8 api;	/* enum call_api_id; 0: not a call but a kernel on the GPU */
	__s8 device;	/* CUDA ordinal, -1: unknown */
	__u8 direction; /* enum copy_direction */
	__u8 captured;	/* 1: as call_facts; of a kernel, KERNEL_UNSEEN or 0 */
	__s32 result;
};

#define KERNEL_UNSEEN 1 /* the launch was not seen */

_Static_assert(sizeof(struct row_key) == 32, "no padding");

#include "launch/windows_error.h"

/* [i]: calls of at least 2^(i + 8) and less than 2^(i + 9) ns. The first also has all
 * shorter ones, the last all longer ones: 512 ns to 8.6 s. */
#define TIME_SLOTS 25
#define TIME_FIRST_BITS 9
/*
 * A slot that has so many calls stays as it is. Slots of 64 bits would not fit: a new row is made on the
 * stack of the program. The rest, to 2^32, is for what several processors add at once.
 */
#define TIME_MOST 0xff000000U

enum row_varies {
	VARIES_GRID = 1,
	VARIES_BLOCK = 2,
	VARIES_SHARED = 4,
	VARIES_STREAM = 8,
};

/* Estimates if not every call is sampled (launch/sample.h), otherwise sums. */
struct row {
	__u64 calls, sampled;
	__u64 bytes, host_ns; /* of a kernel: on the GPU */
	__u64 calls_error, bytes_error, ns_error; /* squares; units: SAMPLE_…_UNIT */
	__u64 blocks, threads;			  /* of all grids */
	__u64 nodes;				  /* of the graphs */
	__u64 streams; /* bit: the stream's hash */
	__u64 stream;  /* of the first call, like the fields below */
	__u32 grid[3], block[3], shared_bytes;
	__u32 varies; /* enum row_varies: a later call differed */
	__u32 time[TIME_SLOTS];
	__u32 pad;
};

/*
 * Row → sums. Written by the exit probes, read by iter/bpf_map_elem. Entries of ended
 * processes are deleted by user space.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct row_key);
	__type(value, struct row);
} rows_by_stack SEC(".maps");

/* As rows_by_stack, for calls whose stack or row did not fit; stack is 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_UNKNOWN_ROWS);
	__type(key, struct row_key);
	__type(value, struct row);
} unknown_rows SEC(".maps");

/* With sampling: the same without the stack, for every call. Deleted like the rows. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_UNKNOWN_ROWS);
	__type(key, struct row_key);
	__type(value, struct total);
} totals_by_call SEC(".maps");

/*
 * Adds a call to its total, with `weight` if it is in the window `number`, and decides
 * whether it is sampled. Returns the number of calls of the window that it represents, 0
 * if it is not sampled. A separate function, so that its variables do not take stack from
 * the unwinder.
 */
static __noinline __u32 call_draw(const struct row_key *key, __u64 bytes, __u64 ns,
				  __u32 number, __u32 weight)
{
	struct total before = {};
	struct total *total = bpf_map_lookup_elem(&totals_by_call, key);

	if (!total && process_remember_current(key->process) &&
	    QUOTA_TAKE(QUOTA_TOTALS, MAX_UNKNOWN_ROWS)) {
		bpf_map_update_elem(&totals_by_call, key, &before, BPF_NOEXIST);
		total = bpf_map_lookup_elem(&totals_by_call, key);
	}
	if (total) {
		before = *total; /* two CPUs may read the same value, which is harmless */
		__sync_fetch_and_add(&total->calls, weight);
		__sync_fetch_and_add(&total->bytes, weight * bytes);
		__sync_fetch_and_add(&total->host_ns, weight * ns);
		window_total(key, number, weight, bytes, ns);
	} else {
		drop(DROP_TOTALS_FULL);
	}
	return sample_draw(&before, bytes, ns);
}

/* A new row starts with the stream and the shape of its first call. */
static __noinline int row_begin(const struct row_key *key, const struct call_facts *facts)
{
	struct row fresh = {};

	if (!key || !facts)
		return 0;
	fresh.stream = facts->stream;
	__builtin_memcpy(fresh.grid, facts->shape.grid, sizeof(fresh.grid));
	__builtin_memcpy(fresh.block, facts->shape.block, sizeof(fresh.block));
	fresh.shared_bytes = facts->shape.shared_bytes;
	if (key->stack) {
		if (!QUOTA_TAKE(QUOTA_ROWS, MAX_ROWS))
			return 0;
		bpf_map_update_elem(&rows_by_stack, key, &fresh, BPF_NOEXIST);
	} else {
		if (!QUOTA_TAKE(QUOTA_UNKNOWN, MAX_UNKNOWN_ROWS))
			return 0;
		bpf_map_update_elem(&unknown_rows, key, &fresh, BPF_NOEXIST);
	}
	return 0;
}

#ifndef LINUX_5_10
struct span_row_key {
	struct row_key row;
	__u64 span; /* of a trace (process/span.h); never 0 */
};

struct span_row {
	struct row row;
	__u64 born_boot_ns; /* a row that was deleted and came again has another */
};

/* As rows_by_stack, for what belongs to a span: see rows_by_span of cuda/rows.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1); /* see process/span.h */
	__type(key, struct span_row_key);
	__type(value, struct span_row);
} rows_by_span SEC(".maps");

static const struct span_row empty_span_row;

/* The span of the current thread. This and the next one are global functions: the verifier follows
 * them once, and not after each way through a call. */
__noinline __u64 span_of_call(void)
{
	return span_current(task_current(), false);
}

/* A new row of a span starts with the stream and the shape of its first call. */
__noinline int span_row_begin(const struct span_row_key *key, const struct call_facts *facts)
{
	struct span_row_key copy;
	struct span_row *row = 0;

	if (!key || !facts)
		return 0;
	copy = *key;
	if (!process_remember_current(copy.row.process))
		return 0;
	if (QUOTA_TAKE(QUOTA_SPANS, MAX_SPAN_ROWS)) {
		span_learn(copy.row.process, copy.span);
		bpf_map_update_elem(&rows_by_span, &copy, &empty_span_row, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&rows_by_span, &copy);
	}
	if (!row) {
		drop(DROP_SPANS_FULL);
		return 0;
	}
	row->born_boot_ns = bpf_ktime_get_boot_ns();
	row->row.stream = facts->stream;
	__builtin_memcpy(row->row.grid, facts->shape.grid, sizeof(row->row.grid));
	__builtin_memcpy(row->row.block, facts->shape.block, sizeof(row->row.block));
	row->row.shared_bytes = facts->shape.shared_bytes;
	return 0;
}

/* The row of the call's span, made at its first use. NULL: there is no room. */
static __noinline struct row *row_of_span(const struct row_key *key, const struct call_facts *facts)
{
	struct span_row_key full = {};
	struct span_row *found;

	if (!key || !facts)
		return 0;
	full.row = *key;
	full.span = facts->span;
	found = bpf_map_lookup_elem(&rows_by_span, &full);
	if (!found) {
		span_row_begin(&full, facts);
		found = bpf_map_lookup_elem(&rows_by_span, &full);
	}
	return found ? &found->row : 0;
}
#else
static __always_inline __u64 span_of_call(void)
{
	return 0;
}

static __always_inline struct row *row_of_span(const struct row_key *key,
					       const struct call_facts *facts)
{
	return 0;
}
#endif

static __always_inline struct row *row_find(const struct row_key *key)
{
	return key->stack ? bpf_map_lookup_elem(&rows_by_stack, key) :
			    bpf_map_lookup_elem(&unknown_rows, key);
}

/*
 * Returns the row of a call, and creates it for the first one. If there is no room for its
 * span, it is the stack's; if that does not fit, the key's stack becomes 0. NULL if that does
 * not fit either.
 */
static __always_inline struct row *row_of(struct row_key *key, const struct call_facts *facts)
{
	struct row *row = 0;

	if (span_ids && facts->span)
		row = row_of_span(key, facts);
	if (!row)
		row = row_find(key);
	if (row)
		return row;
	if (!process_remember_current(key->process)) /* both would not fit the stack */
		return 0;
	row_begin(key, facts);
	row = row_find(key);
	if (!row && key->stack) {
		drop(DROP_ROWS_FULL);
		key->stack = 0;
		row_begin(key, facts);
		row = row_find(key);
	}
	return row;
}

/* Sets bits: atomically if the kernel has the instruction (5.12). */
#ifdef LINUX_5_10
#define ROW_OR(word, bits) ((word) |= (bits))
#else
#define ROW_OR(word, bits) __sync_fetch_and_or(&(word), bits)
#endif

static __always_inline void row_vary(struct row *row, __u32 bit)
{
	if (!(row->varies & bit))
		ROW_OR(row->varies, bit);
}

static __always_inline void row_shape(struct row *row, const struct launch_shape *s, __u64 weight)
{
	__u64 blocks = (__u64)s->grid[0] * s->grid[1] * s->grid[2] * s->launches;

	__sync_fetch_and_add(&row->blocks, weight * blocks);
	__sync_fetch_and_add(&row->threads,
			     weight * blocks * s->block[0] * s->block[1] * s->block[2]);
	if (row->grid[0] != s->grid[0] || row->grid[1] != s->grid[1] || row->grid[2] != s->grid[2])
		row_vary(row, VARIES_GRID);
	if (row->block[0] != s->block[0] || row->block[1] != s->block[1] ||
	    row->block[2] != s->block[2])
		row_vary(row, VARIES_BLOCK);
	if (row->shared_bytes != s->shared_bytes)
		row_vary(row, VARIES_SHARED);
}

/* Returns the position of the highest bit, from 1; 0 for 0. */
static __always_inline __u32 bits_of(__u64 x)
{
	__u32 bits = 0;

	for (int step = 32; step; step >>= 1) {
		if (x >> step) {
			x >>= step;
			bits += step;
		}
	}
	return bits + (x != 0);
}

static __always_inline void row_time(struct row *row, __u64 ns, __u32 weight)
{
	__u32 bits = bits_of(ns), slot = bits > TIME_FIRST_BITS ? bits - TIME_FIRST_BITS : 0;

	if (slot >= TIME_SLOTS)
		slot = TIME_SLOTS - 1;
	/* Through the register that was checked: see context_push(). */
	barrier_var(slot);
	if (slot < TIME_SLOTS && weight < TIME_MOST && row->time[slot] < TIME_MOST - weight)
		__sync_fetch_and_add(&row->time[slot], weight);
}

/* Adds one sampled call that represents `weight` calls; in a window, those of its whole period. */
static __always_inline void row_add(struct row *row, const struct row_key *key,
				    const struct call_facts *facts, __u64 ns, __u32 weight,
				    const struct window *w)
{
	__u64 bytes = facts->bytes, square = (__u64)weight * (weight - 1), bit;

	if (window_weight(w) > 1) {
		square = 0; /* included in the difference between windows */
		weight *= w->weight;
		window_row(key, w->number, weight, bytes, ns);
	}
	__sync_fetch_and_add(&row->calls, weight);
	__sync_fetch_and_add(&row->sampled, 1);
	if (bytes)
		__sync_fetch_and_add(&row->bytes, weight * bytes);
	__sync_fetch_and_add(&row->host_ns, weight * ns);
	if (square) {
		__u64 b = bytes / SAMPLE_BYTES_UNIT, n = ns / SAMPLE_NS_UNIT;

		__sync_fetch_and_add(&row->calls_error, square);
		__sync_fetch_and_add(&row->bytes_error, square * b * b);
		__sync_fetch_and_add(&row->ns_error, square * n * n);
	}
	if (facts->nodes)
		__sync_fetch_and_add(&row->nodes, weight * facts->nodes);
	if (facts->stream != row->stream)
		row_vary(row, VARIES_STREAM);
	if (facts->stream) {
		bit = 1ULL << (mix64(facts->stream) & 63);
		if (!(row->streams & bit))
			ROW_OR(row->streams, bit);
	}
	if (facts->shape.launches)
		row_shape(row, &facts->shape, weight);
	row_time(row, ns, weight);
}

#endif
