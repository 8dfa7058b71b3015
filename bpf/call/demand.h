/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_DEMAND_H
#define GPU_GADGETS_CALL_DEMAND_H

#include "program/drops.h"
#include "program/ring.h"

/*
 * demand: probes that are attached only while what they teach is missing for a process. PyTorch
 * calls cuCtxGetDevice 2,500 times in a training step for an answer that never changes:
 * the first answer of each context is worth a trap, the others are not.
 *
 * Programs ask for a fact that they miss and count the answers. User space
 * (internal/tracer) attaches the points of the fact to a process when its
 * libraries are mapped and whenever it asks, and detaches them after enough answers in a
 * row that taught nothing. It sleeps until a program wakes it.
 */
enum fact {
	FACT_DEVICE = 1, /* the device of a context, from cuCtxGetDevice */
	FACT_KERNEL = 2, /* the name of a kernel, from the runtime's launch functions */
};

#define MAX_DEMANDS 8192

struct demand_key {
	__u32 tgid;
	__u32 fact; /* enum fact */
};

struct demand {
	__u64 asked;   /* calls that missed the fact */
	__u64 learned; /* answers that were new */
	__u64 idle;    /* answers since then that were not */
};

/* (Process, fact) → its demand since its points were last attached. Written by the
 * programs, read and deleted by user space. LRU: what is lost is requested again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_DEMANDS);
	__type(key, struct demand_key);
	__type(value, struct demand);
} demands SEC(".maps");

/* To user space: demands have changed. A record that finds no room is not needed: others wait there. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, LEAST_RING);
} demand_wakeups SEC(".maps");

/* After so many answers in a row without news user space may detach: idleAnswers of internal/tracer. */
#define DEMAND_IDLE_ANSWERS 4096

static __noinline void demand_wake(void)
{
	__u64 *record = bpf_ringbuf_reserve(&demand_wakeups, sizeof(*record), 0);

	if (!record)
		return;
	*record = 0;
	bpf_ringbuf_submit(record, 0);
}

static __noinline struct demand *demand_of(__u32 fact)
{
	struct demand_key key = { .tgid = bpf_get_current_pid_tgid() >> 32, .fact = fact };
	struct demand *d = bpf_map_lookup_elem(&demands, &key);
	struct demand none = {};

	if (d)
		return d;
	bpf_map_update_elem(&demands, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&demands, &key);
}

/* A call needs a fact that is not known. */
static __always_inline void demand_ask(enum fact fact)
{
	struct demand *d = demand_of(fact);

	if (!d)
		return;
	__sync_fetch_and_add(&d->asked, 1);
	/* The first, the second, the fourth, …: a fact that cannot be learned wakes nothing for long. */
	if (!(d->asked & (d->asked - 1)))
		demand_wake();
}

/* A point of the fact has answered. */
static __always_inline void demand_answered(enum fact fact, bool is_new)
{
	struct demand *d = demand_of(fact);

	if (!d)
		return;
	if (is_new) {
		__sync_fetch_and_add(&d->learned, 1);
		d->idle = 0;
	} else {
		__sync_fetch_and_add(&d->idle, 1);
		if (!(d->idle & (DEMAND_IDLE_ANSWERS - 1)))
			demand_wake();
	}
}

#endif
