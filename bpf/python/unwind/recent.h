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
 * Before a walk: what is kept counts for one process and interpreter, and for 256 ticks, so
 * that user space sees the entry of python_lines_by_place, which stays only while it is
 * looked up.
 */
static __always_inline void python_recent_begin(struct python_thread *t)
{
	__u64 h = python_mix(python_mix(t->tick >> 8, t->process), t->interpreter_id);

	t->recent_epoch = h >> 32 | 1;
}

/*
 * Reads the number of the code object of the frame in t->frame, in 3.11 of its function. 0: it
 * has none, or a fault.
 */
static __always_inline __u32 python_version(struct python_thread *t,
					    const struct python_line_key *k)
{
	__u32 version;

	if (t->offsets.minor == 11)
		return python_function_version(t);
	if (user_copy(&t->fault, &version, sizeof(version),
		      k->code + t->offsets.at[PY_CODE_VERSION]))
		return 0;
	return version;
}

/* Index at which the place of a frame is kept: contiguous frames do not share one. */
static __always_inline struct python_recent *python_recent_of(struct python_thread *t, __u64 frame)
{
	return &t->recent[frame / PY_RECENT_APART % PY_RECENT];
}

/* Returns the entry that the key had when the thread was last at it, in the frame in t->frame,
 * or NULL. */
static __noinline struct python_recent *
python_recall(struct python_thread *t, const struct python_line_key *k, __u64 frame)
{
	struct python_recent *r = python_recent_of(t, frame);

	if (r->epoch != t->recent_epoch || r->code != k->code || r->at != k->position - k->code ||
	    r->version != python_version(t, k))
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
	__u64 at = k->position - k->code;

	r->symbol = v->symbol;
	r->line = v->line;
	r->code = k->code;
	r->at = at;
	r->version = t->version;
	r->epoch = t->version && at >> 32 == 0 ? t->recent_epoch : 0;
	return r;
}

#endif
