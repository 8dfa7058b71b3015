/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_WINDOWS_ERROR_H
#define GPU_GADGETS_LAUNCH_WINDOWS_ERROR_H

#include "launch/windows.h"

/* windows_error: the error of sums over calls that were followed in windows. Part of
 * launch/rows.h, which has the keys. */

/* The estimates that calls of a window contribute to. They are read by index in this order. */
enum window_unit { WINDOW_CALLS, WINDOW_BYTES, WINDOW_NS, WINDOW_UNITS };

/* Σ of squares, in units of 2^bits, which grow so that it stays below 2^62. */
struct window_squares {
	__u64 sum;
	__u64 whole; /* the estimate of the pairs itself */
	__u64 most; /* of one window */
	__u32 bits;
	__u32 pad;
};

struct window_sums {
	__u32 pair; /* number / 2 of the windows that `part` has, */
	__u32 pad;
	__u64 part[WINDOW_UNITS][2]; /* by number & 1 */
	struct window_squares squares[WINDOW_UNITS]; /* of earlier pairs */
};

#ifdef LINUX_5_10
static __always_inline void window_row(const struct row_key *key, __u32 number, __u64 weight,
				       __u64 bytes, __u64 ns)
{
}

static __always_inline void window_total(const struct row_key *key, __u32 number, __u64 weight,
					 __u64 bytes, __u64 ns)
{
}

static __always_inline const struct window_sums *window_of_row(const struct row_key *key)
{
	return 0;
}

static __always_inline const struct window_sums *window_of_total(const struct row_key *key)
{
	return 0;
}

static __always_inline __u64 window_error(const struct window_sums *w, enum window_unit unit)
{
	return 0;
}
#else

/* Row → its windows. Written by the exit programs, read by dump_call(), deleted like the
 * rows. Empty while all calls are followed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct row_key);
	__type(value, struct window_sums);
} windows_by_row SEC(".maps");

/* The same for totals_by_call. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_UNKNOWN_ROWS);
	__type(key, struct row_key);
	__type(value, struct window_sums);
} windows_by_total SEC(".maps");

static __always_inline __u64 window_apart(__u64 a, __u64 b)
{
	return a > b ? a - b : b - a;
}

#define WINDOW_SQUARES_MOST (1ULL << 61)
#define WINDOW_ROOT_MOST (1ULL << 30)
/* A unit grows by a factor of 2^WINDOW_STEP; four steps suffice for any 64-bit value. */
#define WINDOW_STEP 10

static __always_inline void window_square(struct window_squares *s, __u64 a, __u64 b)
{
	__u64 d = window_apart(a, b), most = a > b ? a : b;

	s->whole += a + b;
	if (s->most < most)
		s->most = most;
	for (int i = 0; i < 4; i++) {
		if (d >> (s->bits & 63) < WINDOW_ROOT_MOST && s->sum < WINDOW_SQUARES_MOST)
			break;
		s->sum >>= 2 * WINDOW_STEP;
		s->bits += WINDOW_STEP;
	}
	d >>= s->bits & 63;
	__sync_fetch_and_add(&s->sum, d * d);
}

/*
 * Adds a call that represents `weight` calls in the window `number`. If two programs race,
 * one ends the previous pair and the other may still add to it: this changes the error
 * slightly, and no sum.
 */
static __always_inline void window_sum(struct window_sums *w, __u32 number, __u64 weight,
				       __u64 bytes, __u64 ns)
{
	__u32 pair = number >> 1, old = w->pair, half = number & 1;

	if (old != pair && __sync_val_compare_and_swap(&w->pair, old, pair) == old) {
		for (int i = 0; i < WINDOW_UNITS; i++) {
			__u64 a = __sync_lock_test_and_set(&w->part[i][0], 0);
			__u64 b = __sync_lock_test_and_set(&w->part[i][1], 0);

			window_square(&w->squares[i], a, b);
		}
	}
	if (half) {
		__sync_fetch_and_add(&w->part[WINDOW_CALLS][1], weight);
		__sync_fetch_and_add(&w->part[WINDOW_BYTES][1], weight * bytes);
		__sync_fetch_and_add(&w->part[WINDOW_NS][1], weight * ns);
	} else {
		__sync_fetch_and_add(&w->part[WINDOW_CALLS][0], weight);
		__sync_fetch_and_add(&w->part[WINDOW_BYTES][0], weight * bytes);
		__sync_fetch_and_add(&w->part[WINDOW_NS][0], weight * ns);
	}
}

#define WINDOW_ADD(name, map)                                                             \
	static __noinline int name(const struct row_key *key, __u32 number, __u64 weight, \
				   __u64 bytes, __u64 ns)                                 \
	{                                                                                 \
		struct window_sums *w;                                                    \
                                                                                          \
		if (!key)                                                                 \
			return 0;                                                         \
		w = bpf_map_lookup_elem(&map, key);                                       \
		if (!w) {                                                                 \
			struct window_sums fresh = { .pair = number >> 1 };               \
                                                                                          \
			bpf_map_update_elem(&map, key, &fresh, BPF_NOEXIST);              \
			w = bpf_map_lookup_elem(&map, key);                               \
		}                                                                         \
		if (w)                                                                    \
			window_sum(w, number, weight, bytes, ns);                         \
		else                                                                      \
			drop(DROP_ROWS_FULL);                                             \
		return 0;                                                                 \
	}

WINDOW_ADD(window_add_row, windows_by_row)
WINDOW_ADD(window_add_total, windows_by_total)

static __always_inline void window_row(const struct row_key *key, __u32 number, __u64 weight,
				       __u64 bytes, __u64 ns)
{
	if (budget_ppm)
		window_add_row(key, number, weight, bytes, ns);
}

static __always_inline void window_total(const struct row_key *key, __u32 number, __u64 weight,
					 __u64 bytes, __u64 ns)
{
	if (budget_ppm && weight > 1)
		window_add_total(key, number, weight, bytes, ns);
}

/* NULL: all calls were followed. */
static __always_inline const struct window_sums *window_of_row(const struct row_key *key)
{
	struct row_key copy = *key; /* the verifier rejects an iterator's key as a map key */

	return budget_ppm ? bpf_map_lookup_elem(&windows_by_row, &copy) : 0;
}

static __always_inline const struct window_sums *window_of_total(const struct row_key *key)
{
	struct row_key copy = *key; /* the verifier rejects an iterator's key as a map key */

	return budget_ppm ? bpf_map_lookup_elem(&windows_by_total, &copy) : 0;
}

/*
 * In a window a thread is slowed down by probes and does less. Weights are corrected by a factor
 * that operators/attach/budget measures; the uncertainty of that factor is part of the error.
 */
static __always_inline __u64 window_doubt(__u64 whole)
{
	struct budget_traps *traps;
	__u32 zero = 0;

	traps = bpf_map_lookup_elem(&budget_traps, &zero);
	return traps ? (whole >> 10) * traps->doubt_1024 : 0;
}

/* Two standard deviations of a sum, plus that uncertainty. */
static __always_inline __u64 window_error(const struct window_sums *w, enum window_unit unit)
{
	const struct window_squares *s;
	__u64 a, b, open, most, sum, bits, doubt;

	if (!w)
		return 0;
	s = &w->squares[unit];
	a = w->part[unit][0];
	b = w->part[unit][1];
	bits = s->bits & 63;
	most = a > b ? a : b;
	if (s->most > most)
		most = s->most;
	open = window_apart(a, b);
	doubt = window_doubt(s->whole + a + b);
	if (most >> bits >= WINDOW_ROOT_MOST) /* the open pair dominates all earlier ones */
		return 3 * most + doubt;
	open >>= bits;
	most >>= bits;
	sum = s->sum + open * open + most * most / 2;
	return ((2 * sample_root(sum) + (bits ? 1 : 0)) << bits) + doubt;
}
#endif

#endif
