/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_RECENT_H
#define GPU_GADGETS_PYTHON_UNWIND_RECENT_H

#include "python/unwind/same.h"

/*
 * recent: the places that a thread was met at shortly before, kept beside its
 * state. A loop comes by with the same callers again and again, and then a frame costs
 * one read of a number, and no look-up. From 3.11 on, where code is numbered.
 */

/*
 * By what shows in one read that the code of the frame in t->frame is still that of the
 * key: the number of the code object, in 3.11 of the function. The check that it gives;
 * 0: it has no number, or a fault.
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
 * The place and the time, in 256 ticks, never 0. With it what is kept ends within seconds:
 * the entry of python_lines_by_place is the one that user space sees, and that stays for
 * as long as it is looked up.
 */
static __always_inline __u32 python_recent_place(struct python_thread *t,
						 const struct python_line_key *k)
{
	__u64 h = python_mix(python_mix(t->tick >> 8, k->process), k->code);

	return python_mix(h, k->position) >> 32 | 1;
}

/* Where the place of a frame is kept: frames that lie behind each other do not share one. */
static __always_inline struct python_recent *python_recent_of(struct python_thread *t, __u64 frame)
{
	return &t->recent[frame / PY_RECENT_APART % PY_RECENT];
}

/* What was known about the key when the thread was there, in the frame in t->frame. Or NULL. */
static __noinline struct python_recent *python_recall(struct python_thread *t,
						      const struct python_line_key *k,
						      __u64 frame)
{
	struct python_recent *r = python_recent_of(t, frame);

	if (!r->place || r->place != python_recent_place(t, k) || r->check != python_number(t, k))
		return 0;
	return r;
}

/* Keeps v, which is so now; the place only if it will be seen when it no longer is. */
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
