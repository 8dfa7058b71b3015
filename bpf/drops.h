/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_DROPS_H
#define GPU_GADGETS_DROPS_H

/*
 * drops: everything that a gadget could not record, by reason. Every early
 * return that loses something goes through drop() or drop_bytes().
 *
 * One enum for all modules, so that user space prints one table. Values are
 * stable: append only.
 */
enum drop_reason {
	DROP_NONE = 0,
	/* cuda */
	DROP_INFLIGHT_FULL,	  /* inflight_by_tid full: the call was not followed */
	DROP_INFLIGHT_STALE,	  /* a call never returned (longjmp); its entry was replaced */
	DROP_DIED_IN_CALL,	  /* the thread ended between enter and exit */
	DROP_READ_ARGUMENT,	  /* an argument in user memory was unreadable */
	DROP_ROWS_FULL,		  /* no row for this stack: bytes went to [unknown] */
	DROP_UNKNOWN_FULL,	  /* not even an [unknown] row: the bytes are only here */
	DROP_LIVE_FULL,		  /* pointer not remembered: bytes stay in [unknown] */
	DROP_FREE_UNKNOWN,	  /* free of a pointer not seen allocated (before attach) */
	DROP_LIVE_REPLACED,	  /* a pointer was handed out again without a seen free */
	DROP_PROCESSES_FULL,	  /* processes_by_id full */
	DROP_CONTEXTS_FULL,	  /* device of a context not remembered */
	DROP_EVENT_FULL,	  /* ring buffer full: an event was lost */
	DROP_SELECTION_FULL,	  /* a child of a selected process is not followed */
	/* stacks */
	DROP_SCRATCH,		  /* no task storage: call recorded without a stack */
	DROP_STACKS_FULL,	  /* stacks_by_id full: bytes went to [unknown] */
	DROP_SYMBOLS_FULL,	  /* symbols_by_id full: a frame has no name */
	DROP_PYTHON_FAULT,	  /* interpreter memory unreadable: stack incomplete */
	DROP_PYTHON_UNSUPPORTED,  /* an interpreter of a version not known */
	DROP_PYTHON_THREAD,	  /* the thread is not in the interpreter's list */
	DROP_REASON_COUNT,
};

struct drop_count {
	__u64 count;
	__u64 bytes; /* of allocations that are in no row at all */
};

/*
 * drop reason → how often, and how many bytes where bytes are known.
 * Written by every program, read by user space. An array: it is always there.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DROP_REASON_COUNT);
	__type(key, __u32);
	__type(value, struct drop_count);
} drops_by_reason SEC(".maps");

static __always_inline void drop_bytes(enum drop_reason reason, __u64 bytes)
{
	__u32 key = reason;
	struct drop_count *d = bpf_map_lookup_elem(&drops_by_reason, &key);

	if (!d)
		return;
	__sync_fetch_and_add(&d->count, 1);
	if (bytes)
		__sync_fetch_and_add(&d->bytes, bytes);
}

static __always_inline void drop(enum drop_reason reason)
{
	drop_bytes(reason, 0);
}

#endif
