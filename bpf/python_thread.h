/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_THREAD_H
#define GPU_GADGETS_PYTHON_THREAD_H

#include <bpf/bpf_core_read.h>

#include "python_offsets.h"
#include "stack.h"
#include "user.h"

/*
 * python_thread: what is remembered of a thread between its events, the scratch
 * space of one unwind, and where the interpreter keeps the thread's state.
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
#define PY_MAX_THREADS 4096
#define PY_ABSENT_NS (100ULL * 1000 * 1000)

/* How far the search for the interpreter has come; see python_discover.h. */
struct python_search {
	__u64 headers, bias, page, dynamic; /* of the main program */
	__u64 module, next; /* link_map entry being looked at, and its next */
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

/*
 * Who the kernel says the current thread is, in the terms of PyThreadState. On
 * x86-64 pthread_self() is the FS base, for glibc and musl: the same in every
 * pid namespace and after fork. Elsewhere native_thread_id (3.11+) is the only
 * word to compare: the thread's id in its own pid namespace.
 */
struct python_identity {
	__u64 word;
	__u32 field; /* enum python_offset */
	__u32 one_interpreter;
	__u64 rank; /* of the best state so far; see python_thread_rank() */
};

/* The line table that is being read; see python_lines.h. */
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

enum python_status {
	PYTHON_UNKNOWN = 0,
	PYTHON_FOUND = 1,
	PYTHON_ABSENT = 2,	/* no module exports _PyRuntime (yet: dlopen) */
	PYTHON_UNSUPPORTED = 3, /* CPython of a version that is not in the table */
	PYTHON_UNREADABLE = 4,	/* a page was missing */
};

struct python_process {
	__u64 runtime; /* address of _PyRuntime: in the interpreter's data segment */
	__u64 retry_ns; /* boot clock; when ABSENT or UNREADABLE is looked at again */
	__u32 status;  /* enum python_status */
	__u32 version; /* PY_VERSION_HEX; below 3.11 only major and minor */
	__u32 tries;
	__u32 pad;
	struct python_offsets offsets;
};

/* A place in the bytecode. */
struct python_line_key {
	__u64 process;
	__u64 code;	/* address of the code object */
	__u64 position; /* 3.11+: address of the instruction; below: type of the
			   first argument << 17 ^ f_lasti (exact up to 1 MiB of code) */
};

struct python_line_value {
	__u64 symbol;
	__u64 check; /* see python_check() */
	__u32 line;
	__u16 table_at, name_at, file_at; /* of the compared bytes, in their objects */
	__u8 table_bytes, name_bytes, file_bytes;
	__u8 pad[3];
};

struct python_thread {
	__u64 process; /* what follows holds for this process id; 0: none */
	__u64 runtime; /* address of _PyRuntime */
	__u64 state;   /* the thread's PyThreadState; 0: not found yet */
	/* Head of the thread list when this thread was last not in it. New threads
	 * are put at the head: as long as it is the same, another walk is idle, */
	__u64 absent_head;
	__u64 absent_until_ns; /* and this: the list may have changed during the walk */
	/* The newest interpreter at that time; 0 if there were more than one, which
	 * makes every event search: the thread may have a state in each. */
	__u64 only_interpreter;
	__u32 busy; /* an unwind is running: a profiling interrupt must not start one */
	__u32 pad;
	struct python_offsets offsets;
	struct user_fault fault;
	struct python_search search;
	/*
	 * Scratch of one unwind. What a loop carries from step to step stands here
	 * and not on the stack: the verifier follows every value on the stack, and
	 * would unroll the loop to tell them apart.
	 */
	struct python_identity who;
	struct python_line_walk line;
	__u64 interpreter, other; /* of the thread list */
	__u64 entry;		  /* frame on the C stack */
	__s64 cell;
	__u64 next_frame;
	__u32 frame_count;
	__u32 stack_flags;
	struct python_line_key key;
	struct python_line_value fresh;
	struct python_process found;
	__u64 argument_type; /* of the frame; see python_argument_type() */
	__u64 checked_file, checked_hash; /* the file name last compared */
	__u8 thread[PY_BLOCK(256)];
	__u8 frame[PY_BLOCK(512)];
	__u8 code[PY_BLOCK(256)];
	__u8 bytes[PY_BLOCK(256)];
	struct symbol symbol;
};

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

/*
 * A global function is verified once by itself, not anew at each call and in
 * each state of its callers, without which the verifier does not come to an end.
 * The price: it knows its arguments by type only, so it checks them for NULL. And
 * to kernels before 6.2 an argument is no memory that a map call may take its key
 * or value from: functions that need that look t up with python_here().
 */
#define PYTHON_GLOBAL __noinline

static __always_inline struct python_thread *python_here(__u64 flags)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	return bpf_task_storage_get(&python_threads, task, 0, flags);
}

/* The word at a field of a block that was read before. */
static __always_inline __u64 python_word(const __u8 *block, __u32 mask, __u32 offset)
{
	return *(const __u64 *)(block + (offset & mask));
}

#define PY_THREAD(t, field) python_word((t)->thread, 255, (t)->offsets.at[field])
#define PY_FRAME(t, field) python_word((t)->frame, 511, (t)->offsets.at[field])
#define PY_CODE(t, field) python_word((t)->code, 255, (t)->offsets.at[field])

struct python_context {
	struct python_thread *t;
};

static __always_inline void python_identify(struct python_identity *who)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

#if defined(bpf_target_x86) || defined(__TARGET_ARCH_x86)
	who->word = task->thread.fsbase;
	who->field = PY_THREAD_ID;
#else
	struct pid *pid = task->thread_pid;
	struct upid in_namespace = {};
	__u64 at = (__u64)pid + bpf_core_field_offset(struct pid, numbers) +
		   (__u64)pid->level * bpf_core_type_size(struct upid);

	bpf_probe_read_kernel(&in_namespace, sizeof(in_namespace), (void *)at);
	who->word = in_namespace.nr;
	who->field = PY_THREAD_NATIVE_ID;
#endif
}

/* Entered from C: the frame of the interpreter's own trampoline, no Python code
 * (3.12+: FRAME_OWNED_BY_CSTACK = 3; 3.14+: …_BY_INTERPRETER = 3, …_CSTACK = 4). */
#define PY_OWNER_C 3

/* bpf_loop: one frame, until one that lies on the C stack. */
static long python_entry_step(__u32 i, struct python_context *c)
{
	struct python_thread *t = c->t;

	if (!t->entry || user_read(&t->fault, t->frame, t->offsets.frame_bytes & 511, t->entry)) {
		t->entry = 0;
		return 1;
	}
	if ((PY_FRAME(t, PY_FRAME_OWNER) & 0xff) >= PY_OWNER_C)
		return 1;
	t->entry = PY_FRAME(t, PY_FRAME_PREVIOUS);
	return 0;
}

/*
 * A thread that is inside a subinterpreter has a state there and one in each
 * interpreter that it came from. Each was entered from C; the stack of C grows
 * down, so the innermost has the lowest address of what its last entry put there:
 * the _PyCFrame (3.10 – 3.12) or the trampoline's frame (3.13+). The state is in
 * t->thread. All ones where nothing runs, and below 3.10, which leaves no trace.
 */
static __always_inline __u64 python_thread_rank(struct python_thread *t)
{
	struct python_context c = { .t = t };
	__u64 at;

	if (t->offsets.minor < 10)
		return ~0ULL;
	if (t->offsets.minor <= 12) {
		/* 3.10 has a _PyCFrame, too, where 3.11 has it less 8 bytes. */
		at = PY_THREAD(t, PY_THREAD_FRAME);
		if (t->offsets.minor == 10)
			at = python_word(t->thread, 255, 48);
		/* The root _PyCFrame is a part of the state itself. */
		return at - t->other < 65536 ? ~0ULL : at;
	}
	t->entry = PY_THREAD(t, PY_THREAD_FRAME);
	bpf_loop(STACK_PYTHON_FRAMES, python_entry_step, &c, 0);
	return t->entry ? t->entry : ~0ULL;
}

/* bpf_loop: one thread of the list, or on to the next interpreter. */
static long python_thread_step(__u32 i, struct python_context *c)
{
	struct python_thread *t = c->t;

	if (!t->other) {
		__u64 next = 0;

		if (!t->interpreter)
			return 1;
		if (user_read(&t->fault, &next, sizeof(next),
			      t->interpreter + t->offsets.at[PY_INTERPRETER_NEXT]))
			return 1;
		t->interpreter = next;
		if (!next || user_read(&t->fault, &t->other, sizeof(t->other),
				       next + t->offsets.at[PY_INTERPRETER_THREADS]))
			return 1;
		return 0;
	}
	if (user_read(&t->fault, t->thread, PY_THREAD_BYTES, t->other))
		return 1;
	if (python_word(t->thread, 255, t->offsets.at[t->who.field & PY_OFFSET_MASK]) == t->who.word) {
		__u64 rank;

		if (t->who.one_interpreter) {
			t->state = t->other;
			return 1;
		}
		/* Of equals the last: the main interpreter ends the list. */
		rank = python_thread_rank(t);
		if (rank <= t->who.rank) {
			t->who.rank = rank;
			t->state = t->other;
		}
	}
	t->other = PY_THREAD(t, PY_THREAD_NEXT);
	return 0;
}

/*
 * Reads the current thread's PyThreadState into t->thread, looking it up in the
 * interpreters' lists when it is not known. 0; -ESRCH when the thread is not
 * one of Python's; -EFAULT with the address in t->fault.
 */
PYTHON_GLOBAL long python_thread_read(struct python_thread *t)
{
	struct python_context c = { .t = t };
	__u64 head, first = 0, next = 0;

	if (!t)
		return -EINVAL;
	python_identify(&t->who);
	if (user_read(&t->fault, &t->interpreter, sizeof(t->interpreter),
		      t->runtime + t->offsets.at[PY_RUNTIME_INTERPRETERS]))
		return -EFAULT;
	/* New interpreters, too, are put at the head. */
	if (t->state && t->interpreter == t->only_interpreter) {
		__u64 back = 0;

		/*
		 * A freed state keeps most of its bytes. It is alive if the list
		 * still points to it; free() overwrites both links.
		 */
		if (user_read(&t->fault, t->thread, PY_THREAD_BYTES, t->state))
			goto search;
		if (python_word(t->thread, 255, t->offsets.at[t->who.field & PY_OFFSET_MASK]) != t->who.word)
			goto search;
		/* `prev` is right before `next` in every version, `interp` after. */
		head = python_word(t->thread, 255, t->offsets.at[PY_THREAD_NEXT] - 8);
		if (head)
			head += t->offsets.at[PY_THREAD_NEXT];
		else
			head = python_word(t->thread, 255, t->offsets.at[PY_THREAD_NEXT] + 8) +
			       t->offsets.at[PY_INTERPRETER_THREADS];
		if (!bpf_probe_read_user(&back, sizeof(back), (void *)head) &&
		    back == t->state)
			return 0;
	}
search:
	t->state = 0;
	t->fault.count = 0;
	if (!t->interpreter)
		return -ESRCH;
	if (user_read(&t->fault, &next, sizeof(next),
		      t->interpreter + t->offsets.at[PY_INTERPRETER_NEXT]))
		return -EFAULT;
	t->who.one_interpreter = !next;
	t->who.rank = ~0ULL;
	t->only_interpreter = next ? 0 : t->interpreter;
	if (user_read(&t->fault, &head, sizeof(head),
		      t->interpreter + t->offsets.at[PY_INTERPRETER_THREADS]))
		return -EFAULT;
	t->other = head;
	if (head && !next && head == t->absent_head && bpf_ktime_get_ns() < t->absent_until_ns) {
		if (user_read(&t->fault, &first, sizeof(first),
			      head + t->offsets.at[t->who.field & PY_OFFSET_MASK]))
			return -EFAULT;
		if (first != t->who.word)
			return -ESRCH;
	}
	bpf_loop(PY_MAX_THREADS, python_thread_step, &c, 0);
	if (t->state) {
		if (t->who.one_interpreter)
			return 0;
		t->fault.count = 0;
		return user_read(&t->fault, t->thread, PY_THREAD_BYTES, t->state);
	}
	if (t->fault.count)
		return -EFAULT;
	t->absent_head = head;
	t->absent_until_ns = bpf_ktime_get_ns() + PY_ABSENT_NS;
	return -ESRCH;
}

/* The innermost frame of the state in t->thread. 0 or -EFAULT. */
static __always_inline long python_thread_frame(struct python_thread *t, __u64 *frame)
{
	*frame = PY_THREAD(t, PY_THREAD_FRAME);
	if (t->offsets.at[PY_CFRAME_FRAME] == PY_NONE || !*frame)
		return 0;
	return user_read(&t->fault, frame, sizeof(*frame),
			 *frame + t->offsets.at[PY_CFRAME_FRAME]);
}

#endif
