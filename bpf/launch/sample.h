/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_SAMPLE_H
#define GPU_GADGETS_LAUNCH_SAMPLE_H

#include "launch/inflight.h"

/*
 * sample: which calls are sampled, that is, have their stack recorded. A call is sampled
 * with probability 1/N, independently, and then represents N; so every sum over stacks is
 * unbiased for any calls (Horvitz-Thompson), and
 *
 *   Σ over sampled calls of N (N − 1) x²
 *
 * is, on average, the square of the error of a sum of x. Rare or heavy calls have N = 1,
 * so that sampling adds nothing to their error.
 */
const volatile __u32 sample = 1;
GADGET_PARAM(sample);
const volatile __u32 sample_budget = 10000;
GADGET_PARAM(sample_budget);

/* With a budget and no value from the user: as sample = 0. */
static __always_inline __u32 sample_every(void)
{
	return budget_ppm && sample == 1 ? 0 : sample;
}

/* sample = 0: N is a power of two, chosen by the cost of taking stacks. */
#define SAMPLE_MOST_SHIFT 10
#define SAMPLE_WINDOW_NS 100000000ULL
#define SAMPLE_FIRST 64 /* of each process, function and kernel */
#define SAMPLE_LARGE_BYTES (64ULL << 10)
#define SAMPLE_LONG_NS 100000ULL
/* Calls that weigh this many times the average are always sampled: a sum that a few calls
 * dominate is only as accurate as these, and a sample without them does not show that
 * they exist. */
#define SAMPLE_HEAVY 4

/* The squares of sampled values, at most N times this, must stay below 2^64 in the
 * largest sums: 2^13, squared, by 2^20, for 2^18 sampled calls. */
#define SAMPLE_BYTES_UNIT 8
#define SAMPLE_NS_UNIT 64

/* Totals of all calls of a kind. */
struct total {
	__u64 calls, bytes, host_ns;
};

struct sample_state {
	__u64 window_boot_ns; /* start of the window */
	__u64 spent_ns;	      /* spent on stacks in it */
	__u32 shift;
	__u32 pad;
};

/* [0]. Written by all programs. Two at once may both end a window, which changes how soon
 * N adapts but no estimate. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample_state);
} sample_states SEC(".maps");

static __always_inline struct sample_state *sample_state(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sample_states, &zero);
}

/* Whether a call is always sampled, because of its weight or because it is rare. */
static __always_inline bool sample_always(const struct total *before, __u64 bytes, __u64 ns)
{
	return before->calls < SAMPLE_FIRST || bytes >= SAMPLE_LARGE_BYTES ||
	       ns >= SAMPLE_LONG_NS || ns * before->calls >= SAMPLE_HEAVY * before->host_ns ||
	       (bytes && bytes * before->calls >= SAMPLE_HEAVY * before->bytes);
}

/*
 * Returns the number of calls that this one represents, 0 if it was not sampled.
 * `before`: earlier calls of the same kind.
 */
static __always_inline __u32 sample_draw(const struct total *before, __u64 bytes, __u64 ns)
{
	struct sample_state *s;
	__u32 every = sample_every();

	if (sample_always(before, bytes, ns))
		return 1;
	if (!every) {
		s = sample_state();
		every = s ? 1U << (s->shift & 15) : 1;
	}
	if (every <= 1)
		return 1;
	/* The quotient is rounded down: N is too small by at most N²/2^32. */
	return bpf_get_prandom_u32() < 0xffffffffU / every + 1 ? every : 0;
}

/* Accounts for a stack that took `ns`. */
static __always_inline void sample_spent(__u64 now, __u64 ns)
{
	struct sample_state *s;
	__u64 budget, window;

	if (sample_every())
		return;
	s = sample_state();
	if (!s)
		return;
	__sync_fetch_and_add(&s->spent_ns, ns);
	window = now - s->window_boot_ns;
	if (window < SAMPLE_WINDOW_NS)
		return;
	/* In ns of the window; sample_budget is in µs of a second. Stacks may use half of a
	 * budget for all costs of probes. */
	budget = window / 1000 * (budget_ppm ? budget_ppm / 2 : sample_budget) / 1000;
	if (s->spent_ns > budget && s->shift < SAMPLE_MOST_SHIFT)
		s->shift++;
	else if (s->spent_ns < budget / 4 && s->shift)
		s->shift--;
	s->spent_ns = 0;
	s->window_boot_ns = now;
}

/* Returns the integer square root of x, at most 2^62. It has no branches, because the
 * verifier follows both sides of each. A global function is verified once and not at each
 * call. */
__noinline __u64 sample_root(__u64 square)
{
	__u64 root = 0, bit = 1ULL << 62;

	if (square > bit)
		square = bit;
	for (int i = 0; i < 32; i++) {
		__u64 trial = root + bit;
		__u64 fits = ~((__s64)(square - trial) >> 63);

		barrier_var(fits);
		square -= trial & fits;
		root = (root >> 1) + (bit & fits);
		bit >>= 2;
	}
	return root;
}

#endif
