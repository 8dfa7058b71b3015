/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_WINDOWS_H
#define GPU_GADGETS_LAUNCH_WINDOWS_H

#include "call/budget.h"
#include "launch/apis.h"

/*
 * windows: calls that are followed only part of the time, because trapping on all of them would
 * exceed the budget. Time is divided into periods of N slots. In each period one slot, chosen at
 * random, is a window: each call in it represents N calls, so that every sum is right on average.
 * Probes of these functions are attached for their windows only (operators/attach/budget). Whether
 * a call is recorded is decided here, by the time of its entry, so that the time which attaching
 * takes does not matter.
 *
 * Two consecutive windows are independent estimates of their periods. So the square of
 * their difference is, on average, the square of the error of their sum, or larger if the
 * periods differ (collapsed strata: Cochran, Sampling Techniques, 5A.12). This also holds
 * if the calls in a window are sampled in turn (launch/sample.h). Work that begins or
 * ends in the middle of a period adds half the square of a window.
 */

/* The window of a call; 0 and 1 if all calls of its function are followed. */
struct window {
	__u32 number;
	__u32 weight; /* N; 0: the call is not to be recorded */
};

/* Number of calls that one represents; not set without a budget. */
static __always_inline __u32 window_weight(const struct window *w)
{
	return budget_ppm ? w->weight : 1;
}

#ifdef LINUX_5_10
static __always_inline struct window window_of(__u32 api)
{
	return (struct window){ .weight = 1 };
}

static __always_inline bool window_in_use(void)
{
	return false;
}

static __always_inline void window_count(const struct window *w, __s64 calls)
{
}

static __always_inline bool window_is_over(const struct window *w, __u32 api)
{
	return false;
}
#else

struct window_gate {
	__u64 begin_boot_ns, end_boot_ns;
	struct window window;
};

/* The newest two windows. User space writes them in turn, each before it begins. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct window_gate);
} window_gates SEC(".maps");

/* [api] → since when its calls are followed in windows only, in ns since boot; 0: all
 * calls are followed. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUDGET_APIS);
	__type(key, __u32);
	__type(value, __u64);
} window_apis SEC(".maps");

/* [number & 1] → calls of the window in progress: user space detaches the return probes
 * when there are none. Set to 0 by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} window_inflight SEC(".maps");

static __always_inline bool window_includes(const struct window_gate *g, __u64 now)
{
	return g && now >= g->begin_boot_ns && now < g->end_boot_ns;
}

/* Returns the window of a call of `api` that begins now. */
static __always_inline struct window window_of(__u32 api)
{
	struct window all = { .weight = 1 }, none = {};
	const struct window_gate *g;
	const __u64 *from;
	__u32 which = 0;
	__u64 now;

	if (!budget_ppm)
		return all;
	from = bpf_map_lookup_elem(&window_apis, &api);
	if (!from || !*from)
		return all;
	now = bpf_ktime_get_boot_ns();
	if (now < *from)
		return all;
	g = bpf_map_lookup_elem(&window_gates, &which);
	if (!window_includes(g, now)) {
		which = 1;
		g = bpf_map_lookup_elem(&window_gates, &which);
		if (!window_includes(g, now))
			return none;
	}
	return g->window;
}

/* Whether a call of `api` that begins now is of another window than an earlier one. */
static __noinline int window_is_over(const struct window *earlier, __u32 api)
{
	struct window now = window_of(api);

	return earlier && (now.number != earlier->number || now.weight != earlier->weight);
}

/* Whether some launches may not be followed. */
static __always_inline bool window_in_use(void)
{
	__u32 api = API_LAUNCH_USUAL;
	const __u64 *from;

	if (!budget_ppm)
		return false;
	from = bpf_map_lookup_elem(&window_apis, &api);
	return from && *from;
}

/* Counts a call of a window that begins (1) or has returned (-1). */
static __always_inline void window_count(const struct window *w, __s64 calls)
{
	__u32 which = w->number & 1;
	__u64 *inflight;

	if (!budget_ppm || w->weight <= 1)
		return;
	inflight = bpf_map_lookup_elem(&window_inflight, &which);
	if (inflight)
		__sync_fetch_and_add(inflight, calls);
}
#endif

#endif
