/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_RUNTIME_STATE_H
#define GPU_GADGETS_PYTHON_RUNTIME_STATE_H

#include <bpf/bpf_core_read.h>

#include "python/runtime/offsets.h"
#include "stack/stack.h"
#include "process/user.h"
#include "program/storage.h"

/*
 * state: the state of a process and of a thread between events, and the scratch space of
 * one unwind. The other headers of python/ work on it.
 */

/* <asm-generic/errno-base.h>; vmlinux.h has no macros. */
#ifndef ENOENT
#define ENOENT 2
#endif
#ifndef ESRCH
#define ESRCH 3
#endif
#ifndef EFAULT
#define EFAULT 14
#endif
#ifndef EEXIST
#define EEXIST 17
#endif
#ifndef EINVAL
#define EINVAL 22
#endif

/* Blocks of user memory. A power of two and one word more, so that a masked
 * offset plus eight bytes stays inside for the verifier. */
#define PY_BLOCK(bytes) (bytes + 8)
#define PY_THREAD_BYTES 192 /* of PyThreadState: the fields that are used */
#define PY_CODE_BYTES 160   /* of PyCodeObject: up to co_linetable */
/* From co_firstlineno to co_linetable, 3.11 – 3.15. */
#define PY_CODE_CHECK_BYTES 80
/* From co_argcount to co_linetable, below that. */
#define PY_OLD_CODE_FROM 16
#define PY_OLD_CODE_BYTES 112
/* Of a frame: from f_back to f_lineno, 3.7 – 3.10. */
#define PY_OLD_FRAME_FROM 24
#define PY_OLD_FRAME_BYTES 112

/* The progress of the search for the interpreter; see python/runtime/discover.h. */
struct python_search {
	__u64 headers, bias, dynamic; /* of the main program */
	__u64 module, next; /* link_map entry being read, and its next */
	__u64 base, strings, symbols, hash; /* of that module */
	__u64 debug;			    /* r_debug, where the entry is DT_DEBUG */
	__u64 value;			    /* address of the symbol found */
	__u32 header_count;
	__u32 has_bias;
	__s64 found; /* result of the last module */
	/* The table that is being read. */
	__u64 at;
	__u32 index;
	__u32 which; /* enum python_elf_symbol */
	__u32 matched;
};

/* The search for the current thread; see python/runtime/thread.h. */
struct python_identity {
	__u64 word;
	__u64 reach; /* tolerance: how much less than word the thread's value may be */
	__u32 field; /* enum python_offset */
	__u32 one_interpreter;
	__u64 rank; /* of the best state so far; see python_thread_rank() */
};

/* The offsets that are being read; see python/runtime/process.h. */
struct python_offset_walk {
	__u64 runtime;
	__u32 minor;
	__s32 err;
};

/* The line table that is being read; see python/unwind/lines.h. */
struct python_line_walk {
	__u64 table; /* address of the first byte */
	__u32 size, at;
	__s32 target;  /* 3.11+: code units; below: bytes */
	__s32 address; /* end of the entry, same unit */
	__s32 line;    /* of the entry; 0: it has none */
	__s32 computed;
	__u32 number, shift; /* variable-length number being read */
	__u8 minor, first, kind, covers;
	__s32 answer; /* -1: not found */
};

/* The function that is searched for; see python/unwind/method.h. */
struct python_method {
	__u64 mro, name, hash;
	__u64 keys, size, at, perturb; /* of the dict being read; keys 0: none */
	__u64 function, version;       /* the function found; version of its dict when that was read */
	__u64 dict;
	__u32 bases, next;
};

enum python_status {
	PYTHON_UNKNOWN = 0,
	PYTHON_FOUND = 1,
	PYTHON_ABSENT = 2,	/* no module exports _PyRuntime (yet: dlopen) */
	PYTHON_UNSUPPORTED = 3, /* a CPython version that is not in the table */
	PYTHON_UNREADABLE = 4,	/* a page was missing */
};

struct python_process {
	__u64 runtime; /* address of _PyRuntime: in the interpreter's data segment */
	__u64 retry_ns; /* boot clock; when ABSENT or UNREADABLE is searched again */
	__u32 status;  /* enum python_status */
	__u32 version; /* PY_VERSION_HEX; below 3.11 only major and minor */
	__u32 tries;
	__u32 pad;
	struct python_offsets offsets;
};

/* A place in the bytecode. */
struct python_line_key {
	__u64 process; /* and interpreter */
	__u64 code;	/* address of the code object */
	__u64 position; /* 3.11+: address of the instruction. Below: f_lasti, exact up
			   * to 1 MiB of code; its high bits have the type of `self` if
			   * it differs from the one first seen at the place. */
};

/* What shows whether an entry is valid comes first: an LRU entry may be overwritten while it is
 * read, from its beginning on. */
struct python_line_value {
	__u64 check; /* see python_check() */
	/* 3.11: the value of python_witness() when the check last passed; 0: unknown.
	 * Below: with has_self the type of `self`, else the function that has the
	 * qualname, 0 if it is unknown. */
	__u64 witness;
	/* Below 3.11, for a function in the dict of a class or module: that dict, 0 if it
	 * has changed, and python_owned(). */
	__u64 dict, owned;
	__u64 symbol;
	__u32 line;
	__u16 table_at, name_at, file_at; /* of the compared bytes, in their objects */
	__u8 table_bytes, name_bytes;
	__u8 has_self; /* below 3.11: the symbol has the class of `self` */
	__u8 turns; /* 3.11: remaining events without a witness; below: events */
	__u8 name_last, file_last; /* how many bytes of these, less one */
	__u8 long_owned; /* the dict stayed as it is for PY_OWNED_LONG events */
};

/* A dict that was read in this unwind; see python_dict_version(). */
struct python_dict_seen {
	__u64 dict, version;
};

#define PY_DICTS_SEEN 8

/* A place where the thread was recently seen; see python/unwind/recent.h. */
struct python_recent {
	__u64 symbol;
	__u64 code;    /* as in python_line_key */
	__u32 at;      /* position, counted from code */
	__u32 version; /* of the code object; 3.11: of its function */
	__u32 line;
	__u32 epoch; /* python_thread.recent_epoch; 0: no place is kept */
};

/*
 * Facts that were verified in a tick of the kernel's clock, which is 1 to 10 ms
 * (CONFIG_HZ). They are trusted for the rest of the tick unless something that is read
 * anyway contradicts them.
 */
struct python_proof {
	__u64 tick;
	/* The thread's state is alive, and its interpreter the only one; the state's
	 * links at that time. */
	__u64 state, previous, next;
	/* The outermost frame and the entry that it is linked to; 0: unknown. See
	 * python_outermost(). */
	__u64 frame, entry;
};

#define PY_RECENT 128
#define PY_RECENT_APART 64 /* bytes: no frame of 3.11 or later is shorter */
/* Block of frames that is read at once; see python/unwind/window.h. */
#define PY_WINDOW 1024
#define PY_NEW_FRAME_BYTES 80 /* maximum bytes of one, from 3.11 on */

struct python_thread {
	__u64 task; /* kernel address of the task_struct whose stack is read */
	__u64 process; /* the process id that the fields below are valid for; 0: none */
	__u64 runtime; /* address of _PyRuntime */
	__u64 state;   /* the thread's PyThreadState; 0: not found yet */
	/* Head of the thread list when this thread was last not in it. New threads are
	 * inserted at the head, so while it is the same, another walk is pointless, */
	__u64 absent_head;
	__u64 absent_until_ns; /* and tid: the list may have changed during the walk */
	/* The newest interpreter at that time; 0 if there were more than one, which
	 * makes every event search: the thread may have a state in each. */
	__u64 only_interpreter;
	__u64 interpreter_id; /* of the thread's state; see python_thread_interpreter() */
	__u64 reloads; /* 1: the code of a function was replaced; see python_owned() */
	__u32 busy; /* an unwind is in progress: a profiling interrupt must not start another */
	__u32 line_bytes; /* of line tables, read in this event: PY_LINE_BUDGET */
	struct python_offsets offsets;
	struct user_fault fault;
	struct python_search search;
	/*
	 * Scratch of one unwind. Loop state is kept here and not on the stack: the
	 * verifier tracks every value on the stack, and would unroll the loop to
	 * distinguish them.
	 */
	struct python_identity who;
	struct python_line_walk line;
	struct python_offset_walk offset;
	struct python_method method;
	__u64 interpreter, other; /* of the thread list */
	__u64 entry;		  /* frame on the C stack */
	__s64 cell;
	__u64 next_frame;
	__u64 innermost, innermost_at; /* the first frame, and its instruction */
	__u32 frame_count;
	__u32 stack_flags;
	struct python_line_key key;
	struct python_line_value fresh;
	struct python_process found;
	__u64 argument_type; /* of the frame; see python_argument_type() */
	/* Of the code object that is being named. */
	__u64 has_self;
	__u64 qualname; /* below 3.11: of its function; 0: not found */
	__u64 checked_file, checked_hash; /* the file name last compared */
	__u64 checked_type, checked_class; /* the class name last compared */
	struct python_dict_seen dicts[PY_DICTS_SEEN];
	__u64 window_from, window_to; /* the first and the last frame in window; to 0: none */
	__u64 apart;		      /* the frame that was last read separately */
	__u64 tick;		      /* of the kernel's clock, when the unwind began */
	__u64 last, last_previous;    /* the frame named last, if it determines its caller */
	__u64 cframe;		      /* see python/unwind/entries.h */
	struct python_proof proof;
	__u32 version; /* of python_recent, where it was read to name the frame; else 0 */
	__u32 recent_epoch; /* see python_recent_begin() */
	struct python_recent recent[PY_RECENT];
	__u8 window[PY_WINDOW + PY_NEW_FRAME_BYTES];
	__u8 thread[PY_BLOCK(256)];
	__u8 frame[PY_BLOCK(512)];
	__u8 code[PY_BLOCK(256)];
	__u8 bytes[PY_BLOCK(256)];
	struct symbol symbol;
#ifdef LINUX_5_10
	__u64 owner; /* the thread that is unwound */
	__u64 noted; /* its mutable state, as in python_threads */
	/* The frames of python_walk_frames(), which cannot pass a stack on. */
	struct python_walked {
		struct python_frame python[STACK_PYTHON_FRAMES];
	} walked;
#endif
};

#ifdef LINUX_5_10
/*
 * [0]: the scratch of one unwind. One at a time on a CPU: see program/linux_5_10.h. State
 * that lasts until the thread's next event is in python_threads.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct python_thread);
} python_scratch SEC(".maps");

/* The head of python_thread, up to the fields of a single event. */
#define PYTHON_HEAD_BYTES 72

struct python_known {
	__u8 head[PYTHON_HEAD_BYTES];
	struct python_offsets offsets;
};

/* Thread → its state. LRU: an evicted thread is searched again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct python_known);
} python_threads SEC(".maps");

_Static_assert(offsetof(struct python_thread, busy) == PYTHON_HEAD_BYTES, "as copied");
#else
/*
 * Thread → its python_thread. Written by the programs that unwind; ends with
 * the thread. Task storage and not a per-CPU array, because uprobe programs are
 * preempted and sleep.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct python_thread);
} python_threads SEC(".maps");
#endif

/*
 * A global function is verified once by itself, not at each call and in each state of its
 * callers, which would exceed the verifier's limit. In exchange, only the types of its
 * arguments are known, so it checks them for NULL. Before 6.2 an argument cannot be the
 * key or value of a map call; functions that need this look t up with python_here().
 */
#define PYTHON_GLOBAL __noinline

static __always_inline struct python_thread *python_here(__u64 flags)
{
#ifdef LINUX_5_10
	__u32 zero = 0;

	return bpf_map_lookup_elem(&python_scratch, &zero);
#else
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	return storage_get(&python_threads, task, flags);
#endif
}

/*
 * A global function's parameters with t first, and the arguments. Before 5.12 none
 * is a pointer: PYTHON_TAKE_T stands first in the function and finds t.
 */
#ifdef LINUX_5_10
#define PYTHON_T(...) __VA_ARGS__
#define PYTHON_TAKE_T struct python_thread *t = python_here(0)
#define PYTHON_GIVE(t, ...) __VA_ARGS__
#else
#define PYTHON_T(...) struct python_thread *t, ##__VA_ARGS__
#define PYTHON_TAKE_T
#define PYTHON_GIVE(t, ...) t, ##__VA_ARGS__
#endif

/* The word at a field of a block that was read before. */
static __always_inline __u64 python_word(const __u8 *block, __u32 mask, __u32 offset)
{
	return *(const __u64 *)(block + (offset & mask));
}

#define PY_THREAD(t, field) python_word((t)->thread, 255, (t)->offsets.at[field])
#define PY_FRAME(t, field) python_word((t)->frame, 511, (t)->offsets.at[field])
#define PY_CODE(t, field) python_word((t)->code, 255, (t)->offsets.at[field])

/* Whether the state is the thread's in which who->field has this value. */
static __always_inline bool python_is_who(const struct python_identity *who, __u64 value)
{
	return who->word - value <= who->reach;
}

/* The task whose stack is read, for BPF_CORE_READ(). */
static __always_inline struct task_struct *python_subject(struct python_thread *t)
{
	return (struct task_struct *)t->task;
}

/* Context of every bpf_loop() here. */
struct python_context {
	struct python_thread *t;
};

/* A step of a loop over t, or over a struct that has t and more. */
#ifdef LINUX_5_10
#define PYTHON_STEP(name, context, argument, ...)                              \
	LOOP_STEP_GLOBAL(name, context, argument,                              \
			 struct python_thread *t = python_here(0); if (!t) return 1; \
			 struct context context_ = { .t = t, ##__VA_ARGS__ };  \
			 struct context *argument = &context_)
#else
#define PYTHON_STEP(name, context, argument, ...) \
	static long name(__u32 i, struct context *argument)
#endif

#endif
