/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROGRAM_DROPS_H
#define GPU_GADGETS_PROGRAM_DROPS_H

/*
 * drops: everything that a gadget could not record, by reason. Every early
 * return that loses something goes through drop() or drop_bytes().
 *
 * X(constant, name shown to users). One table for all modules. Append only: the numbers
 * are visible to users.
 */
#define DROP_REASONS(X)                                                             \
	/* a call never returned (longjmp, an exception): the next one replaced it */ \
	X(DROP_INFLIGHT_STALE, "call_not_returned")                                 \
	/* the thread ended between a call's entry and its return */                \
	X(DROP_DIED_IN_CALL, "died_in_call")                                        \
	/* an argument in user memory was unreadable */                             \
	X(DROP_READ_ARGUMENT, "argument_unreadable")                                \
	/* no row for this stack: its bytes went to [unknown] */                    \
	X(DROP_ROWS_FULL, "rows_full")                                              \
	/* not even an [unknown] row: the bytes are only here */                    \
	X(DROP_UNKNOWN_FULL, "unknown_rows_full")                                   \
	/* a pointer, handle or mapping was not remembered: [unknown] has it */     \
	X(DROP_LIVE_FULL, "live_full")                                              \
	/* free of a pointer that was allocated before attach */                    \
	X(DROP_FREE_UNKNOWN, "freed_before_attach")                                 \
	/* a pointer was allocated again and its free was not seen */               \
	X(DROP_LIVE_REPLACED, "free_missed")                                        \
	/* no room for a process: it has no rows, and what it did is only here */   \
	X(DROP_PROCESSES_FULL, "processes_full")                                    \
	/* the device of a context was not remembered */                            \
	X(DROP_CONTEXTS_FULL, "contexts_full")                                      \
	/* the ring buffer was full: an event was lost */                           \
	X(DROP_EVENT_FULL, "event_lost")                                            \
	/* a child of a selected process is not followed */                         \
	X(DROP_SELECTION_FULL, "selection_full")                                    \
	/* no memory for a thread's state: its call was not followed */             \
	X(DROP_SCRATCH, "thread_state_failed")                                      \
	/* a new stack did not fit: its bytes went to [unknown] */                  \
	X(DROP_STACKS_FULL, "stacks_full")                                          \
	/* a frame has no name */                                                   \
	X(DROP_SYMBOLS_FULL, "symbols_full")                                        \
	/* interpreter memory was unreadable: the stack is incomplete */            \
	X(DROP_PYTHON_FAULT, "python_unreadable")                                   \
	/* an interpreter of an unknown version */                                  \
	X(DROP_PYTHON_UNSUPPORTED, "python_unsupported")                            \
	/* the thread is not in the interpreter's list */                           \
	X(DROP_PYTHON_THREAD, "python_thread_unknown")                              \
	/* the holder of the GIL is unknown for this version: no sample */          \
	X(DROP_GIL_UNKNOWN, "gil_unknown")                                          \
	/* it is unknown whether a process runs Python: no sample */                \
	X(DROP_PROCESS_UNREADABLE, "process_unreadable")                            \
	/* no row for this span: counted in the stack's row without one */          \
	X(DROP_SPANS_FULL, "span_rows_full")                                        \
	/* the place of a child's spans was not stored */                           \
	X(DROP_SPAN_SOURCES_FULL, "span_sources_full")                              \
	/* the span that a process publishes could not be read */                   \
	X(DROP_SPAN_UNREADABLE, "span_unreadable")                                  \
	/* a communicator of NCCL, or one more in a group, is not followed */       \
	X(DROP_COMMUNICATORS_FULL, "communicators_full")                            \
	/* what NCCL allocates for a communicator is not counted as its */          \
	X(DROP_BUFFERS_FULL, "buffers_full")                                        \
	/* the progress of a stream of NCCL is unknown */                           \
	X(DROP_STREAMS_FULL, "streams_full")                                        \
	/* a kernel has no name, or only its handle is known */                     \
	X(DROP_KERNELS_FULL, "kernels_full")                                        \
	/* a call is not in the totals of all calls; it may be in a row */          \
	X(DROP_TOTALS_FULL, "totals_full")                                          \
	/* the pool of a process was not stored: its blocks are not followed */     \
	X(DROP_TORCH_POOLS_FULL, "torch_pools_full")                                \
	/* a kernel was executed whose launch was not seen */                       \
	X(DROP_DEVICE_LAUNCH, "launch_not_seen")                                    \
	/* the CUPTI library does not report this launch's kernel */                \
	X(DROP_DEVICE_TIME_MISSING, "device_time_missing")                          \
	/* a kernel was executed, but CUPTI has no time for it */                   \
	X(DROP_DEVICE_UNTIMED, "device_time_unknown")                               \
	/* a thread of autograd works on a pass whose caller is unknown */          \
	X(DROP_BACKWARD_UNKNOWN, "backward_unknown")                                \
	/* native frames are missing at the root of a stack (stack/unwind.h): */    \
	/* code without unwind information */                                       \
	X(DROP_NATIVE_NO_RULES, "native_no_rules")                                  \
	/* unwind information that was not read yet */                              \
	X(DROP_NATIVE_NOT_LOADED, "native_not_loaded")                              \
	/* more frames than fit */                                                  \
	X(DROP_NATIVE_TRUNCATED, "native_truncated")                                \
	/* no return address where the unwind information has it */                 \
	X(DROP_NATIVE_BROKEN, "native_broken")                                      \
	/* a page of the machine stack that is not in memory */                     \
	X(DROP_NATIVE_UNREADABLE, "native_unreadable")                              \
	/* mappings that were being changed, or no memory for the walk */           \
	X(DROP_NATIVE_BUSY, "native_busy")                                          \
	/* a context from before attach ended: what was allocated in it since is unknown */ \
	X(DROP_CONTEXT_BEFORE, "context_before_attach")                             \
	/* a frame has no line: the line table of its function is too long */       \
	X(DROP_PYTHON_LINE, "python_line_unknown")

enum drop_reason {
	DROP_NONE = 0,
#define X(constant, name) constant,
	DROP_REASONS(X)
#undef X
	DROP_REASON_COUNT,
};

#define DROP_NAME_BYTES 24

static const char drop_names[DROP_REASON_COUNT][DROP_NAME_BYTES] = {
#define X(constant, name) [constant] = name,
	DROP_REASONS(X)
#undef X
};

struct drop_count {
	__u64 count;
	__u64 bytes; /* of allocations that are in no row */
};

/*
 * drop reason → count, and bytes if they are known. Written by every program, read by
 * user space. An array: its entries always exist.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DROP_REASON_COUNT);
	__type(key, __u32);
	__type(value, struct drop_count);
} drops_by_reason SEC(".maps");

static __always_inline void drop_add(enum drop_reason reason, __u64 count, __u64 bytes)
{
	__u32 key = reason;
	struct drop_count *d = bpf_map_lookup_elem(&drops_by_reason, &key);

	if (!d)
		return;
	if (count) /* adding a constant 0 becomes an atomic OR, which came with 5.12 */
		__sync_fetch_and_add(&d->count, count);
	if (bytes)
		__sync_fetch_and_add(&d->bytes, bytes);
}

static __always_inline void drop_bytes(enum drop_reason reason, __u64 bytes)
{
	drop_add(reason, 1, bytes);
}

static __always_inline void drop(enum drop_reason reason)
{
	drop_bytes(reason, 0);
}

/* One reason as user space sees it: the data source `drops`. */
struct drop_row {
	char reason[DROP_NAME_BYTES];
	__u64 count;
	__u64 bytes;
};

/* Declares the data source; a gadget that counts drops has this line. */
#define DROPS_DATA_SOURCE                                                           \
	GADGET_ITER(drops, drop_row, dump_drops);                                   \
	GADGET_ITER_TARGET_MAP(dump_drops, drops_by_reason);                        \
	SEC("iter/bpf_map_elem")                                                    \
	int dump_drops(struct bpf_iter__bpf_map_elem *ctx)                          \
	{                                                                           \
		__u32 *key = ctx->key;                                              \
		struct drop_count *d = ctx->value;                                  \
		struct drop_row row = {};                                           \
                                                                                    \
		if (!key || !d || !*key || *key >= DROP_REASON_COUNT)               \
			return 0;                                                   \
		bpf_probe_read_kernel(row.reason, sizeof(row.reason),               \
				      drop_names[*key]);                            \
		row.count = d->count;                                               \
		row.bytes = d->bytes;                                               \
		bpf_seq_write(ctx->meta->seq, &row, sizeof(row));                   \
		return 0;                                                           \
	}

#endif
