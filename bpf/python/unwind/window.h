/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_WINDOW_H
#define GPU_GADGETS_PYTHON_UNWIND_WINDOW_H

#include "python/runtime/state.h"

/*
 * window: reads frames, several at once if they are contiguous. From 3.11 on they are, in
 * blocks of 16 KiB, callers first, except those of generators and those that represent a
 * call from C (3.12).
 */

/* Distance below the last frame at which another may belong to the same block. */
#define PY_WINDOW_NEAR 8192
#define PY_PAGE 4096ULL

/* Reads the frame and those before it into t->window. 0, or -ENOENT: not possible for this one. */
static __always_inline long python_window_move(struct python_thread *t, __u64 frame)
{
	__u64 from = frame + PY_NEW_FRAME_BYTES - PY_WINDOW;
	__u64 page = frame & ~(PY_PAGE - 1);
	__u64 bytes;

	/* Twice near each other: the stack continues in another block. */
	if (t->window_to && t->window_from - frame > PY_WINDOW_NEAR &&
	    t->apart - frame > PY_WINDOW_NEAR) {
		t->apart = frame;
		return -ENOENT;
	}
	/* The previous page may be missing, and no frame of this block needs it. */
	if (from < page)
		from = page;
	bytes = frame + PY_NEW_FRAME_BYTES - from;
	t->window_to = 0;
	if (bytes > PY_WINDOW || user_copy(&t->fault, t->window, bytes, from))
		return -ENOENT;
	t->window_from = from;
	t->window_to = frame;
	return 0;
}

/* Copies a frame's head from the window into t->frame. 0 or -ENOENT. */
static __noinline long python_window_frame(struct python_thread *t, __u64 frame)
{
	__u64 *words = (__u64 *)t->frame;
	__u64 at;

	if (t->offsets.frame_bytes > PY_NEW_FRAME_BYTES || frame & 7)
		return -ENOENT;
	if ((frame < t->window_from || frame > t->window_to) && python_window_move(t, frame))
		return -ENOENT;
	at = (frame - t->window_from) & (PY_WINDOW - 8);
	for (__u32 i = 0; i < PY_NEW_FRAME_BYTES / 8; i++)
		words[i] = *(__u64 *)(t->window + at + i * 8);
	return 0;
}

/* Reads the head of a single frame into t->frame. 0 or -EFAULT. */
static __noinline long python_read_frame(struct python_thread *t, __u64 frame)
{
	__u64 *words = (__u64 *)t->frame;

	switch (t->offsets.frame_bytes) {
	case 72: /* 3.11 – 3.13 */
		return user_read_words(&t->fault, words, 72 / 8, frame);
	case PY_NEW_FRAME_BYTES: /* 3.14, 3.15 */
		return user_read_words(&t->fault, words, PY_NEW_FRAME_BYTES / 8, frame);
	case PY_OLD_FRAME_BYTES:
		return user_read_words(&t->fault, words + PY_OLD_FRAME_FROM / 8,
				       (PY_OLD_FRAME_BYTES - PY_OLD_FRAME_FROM) / 8,
				       frame + PY_OLD_FRAME_FROM);
	default:
		return user_read(&t->fault, words, t->offsets.frame_bytes & 511, frame);
	}
}

#endif
