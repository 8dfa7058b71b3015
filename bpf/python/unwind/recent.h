/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_RECENT_H
#define GPU_GADGETS_PYTHON_UNWIND_RECENT_H

#include "python/unwind/same.h"

/*
 * recent: the places where a thread was seen shortly before, kept with its state. In a
 * loop the same callers recur, and then a frame costs one read of a number and no lookup.
 * From 3.11 on, where code is numbered.
 */

/*
 * Derives the check of the key from the number of the code object of the frame in
 * t->frame, in 3.11 of its function, with one read. 0: it has no number, or a fault.
 */
static __always_inline __u64 python_number(struct python_thread *t,
					   const struct python_line_key *k)
{
	__u32 version;

	if (t->offsets.minor == 11)
		return python_witness(t, k);
	if (user_copy(&t->fault, &version, sizeof(version),
		      k->code + t->offsets.at[PY_CODE_VERSION]) ||
	    !version)
		return 0;
	return python_numbered(k, version);
}

/*
 * Combines the place with the time, in units of 256 ticks; never 0. So a kept place
 * expires within seconds. User space sees the entry of python_lines_by_place, which stays
 * only while it is looked up.
 */
static __always_inline __u32 python_recent_place(struct python_thread *t,
						 const struct python_line_key *k)
{
	__u64 h = python_mix(python_mix(t->tick >> 8, k->process), k->code);

	return python_mix(h, k->position) >> 32 | 1;
}

/* Index at which the place of a frame is kept: contiguous frames do not share one. */
static __always_inline struct python_recent *python_recent_of(struct python_thread *t, __u64 frame)
{
	return &t->recent[frame / PY_RECENT_APART % PY_RECENT];
}

/* Returns the entry that the key had when the thread was last at it, in the frame in t->frame,
 * or NULL. */
static __noinline struct python_recent *python_recall(struct python_thread *t,
						      const struct python_line_key *k,
						      __u64 frame)
{
	struct python_recent *r = python_recent_of(t, frame);

	if (!r->place || r->place != python_recent_place(t, k) || r->check != python_number(t, k))
		return 0;
	return r;
}

/* Keeps v, which is valid now, and only if a read will show when it no longer is. */
static __always_inline struct python_recent *python_met(struct python_thread *t,
							const struct python_line_key *k,
							__u64 frame,
							const struct python_line_value *v)
{
	struct python_recent *r = python_recent_of(t, frame);

	r->symbol = v->symbol;
	r->line = v->line;
	r->check = t->offsets.minor == 11 ? v->witness : v->check;
	r->place = t->offsets.minor >= 11 && r->check ? python_recent_place(t, k) : 0;
	return r;
}

#endif
