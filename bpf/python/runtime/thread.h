/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_RUNTIME_THREAD_H
#define GPU_GADGETS_PYTHON_RUNTIME_THREAD_H

#include "python/runtime/state.h"

/*
 * thread: finds the current thread's PyThreadState, and in it the
 * innermost frame.
 */
#define PY_MAX_THREADS 4096
#define PY_THREAD_FEW 160 /* bytes: 3.12 and 3.13 use no more */
#define PY_ABSENT_NS (100ULL * 1000 * 1000)

/*
 * The identity of the current thread according to the kernel, in the terms of
 * PyThreadState.
 *
 * On x86-64 pthread_self() is the FS base, for glibc and musl: the same in every
 * pid namespace and after fork.
 *
 * On arm64 TPIDR_EL0 points behind glibc's and musl's struct pthread (TLS variant 1),
 * whose size differs by version. The size is not needed: with a stack and its guard in
 * between, no two threads have theirs within 4 KiB of each other. But the kernel has the
 * register's value from when the thread was last switched out, so a main thread that has
 * not been since its exec is not found. So from 3.11 on native_thread_id is compared, the
 * thread's id in its own pid namespace.
 */
#define PY_BELOW_THREAD_POINTER 4096

static __always_inline void python_identify(struct python_thread *t)
{
	struct python_identity *who = &t->who;
#ifdef USER_OF_OTHER_TASK
	struct task_struct *task = python_subject(t);
#else
	struct task_struct *task = task_current();
#endif

#if defined(bpf_target_x86) || defined(__TARGET_ARCH_x86)
#ifdef USER_OF_OTHER_TASK
	who->word = BPF_CORE_READ(task, thread.fsbase);
#else
	who->word = TASK_READ(task, thread.fsbase);
#endif
	who->field = PY_THREAD_ID;
	who->reach = 0;
#else
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid in_namespace = {};
	__u64 at = (__u64)pid + bpf_core_field_offset(struct pid, numbers) +
		   (__u64)BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid);

	if (t->offsets.at[PY_THREAD_NATIVE_ID] == PY_NONE) {
#if defined(__TARGET_ARCH_arm64)
		who->word = BPF_CORE_READ(task, thread.uw.tp_value);
#endif
		who->field = PY_THREAD_ID;
		who->reach = PY_BELOW_THREAD_POINTER;
		return;
	}
	bpf_probe_read_kernel(&in_namespace, sizeof(in_namespace), (void *)at);
	who->word = in_namespace.nr;
	who->field = PY_THREAD_NATIVE_ID;
	who->reach = 0;
#endif
}

/* Entered from C: the frame of the interpreter's own trampoline, not Python code
 * (3.12+: FRAME_OWNED_BY_CSTACK = 3; 3.14+: …_BY_INTERPRETER = 3, …_CSTACK = 4). */
#define PY_OWNER_C 3

/* bpf_loop: one frame, until one that lies on the C stack. */
PYTHON_STEP(python_entry_step, python_context, c)
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

/* Part of the thread's state itself: no Python code runs. */
static __always_inline bool python_in_state(__u64 state, __u64 address)
{
	return address - state < 65536;
}

/*
 * Whether the thread of the state in t->thread, which is read from `state`, has run.
 *
 * Up to 3.11, until then, its state has the id of its creator: after the creator's end,
 * that of any thread whose stack is in the same place. gilstate_counter, two words before
 * the id, is 0 until then, and once more while PyGILState_Release() runs destructors,
 * which has frames.
 */
static __always_inline bool python_state_ran(struct python_thread *t, __u64 state)
{
	__u64 frame;

	if (t->offsets.minor > 11 ||
	    (__u32)python_word(t->thread, 255, t->offsets.at[PY_THREAD_ID] - 16))
		return true;
	frame = PY_THREAD(t, PY_THREAD_FRAME);
	return frame && !python_in_state(state, frame);
}

/* Whether that state is the current thread's. */
static __always_inline bool python_is_its_state(struct python_thread *t, __u64 state)
{
	return python_is_who(&t->who, python_word(t->thread, 255,
						  t->offsets.at[t->who.field & PY_OFFSET_MASK])) &&
	       python_state_ran(t, state);
}

/*
 * A thread inside a subinterpreter has a state there and one in each outer interpreter.
 * Each was entered from C, whose stack grows down, so the object that the innermost entry
 * put there has the lowest address: the _PyCFrame (3.10 – 3.12) or the trampoline's frame
 * (3.13+). The state is in t->thread. All ones if nothing runs.
 *
 * Below 3.10 the entry leaves no trace. If several have frames, the newest interpreter,
 * the first in the list, was most likely entered from the others.
 */
static __always_inline __u64 python_thread_rank(struct python_thread *t)
{
	struct python_context c = { .t = t };
	__u64 at;

	if (t->offsets.minor < 10)
		return !PY_THREAD(t, PY_THREAD_FRAME) ? ~0ULL : t->who.rank == ~0ULL ? 1 : 2;
	if (t->offsets.minor <= 12) {
		/* 3.10 has a _PyCFrame, too, 8 bytes before its position in 3.11. */
		at = PY_THREAD(t, PY_THREAD_FRAME);
		if (t->offsets.minor == 10)
			at = python_word(t->thread, 255, 48);
		return python_in_state(t->other, at) ? ~0ULL : at; /* the root _PyCFrame */
	}
	t->entry = PY_THREAD(t, PY_THREAD_FRAME);
	LOOP(STACK_PYTHON_FRAMES, python_entry_step, &c);
	return t->entry ? t->entry : ~0ULL;
}

#ifdef USER_OF_OTHER_TASK
struct python_state_key {
	__u64 process;
	__u64 word; /* as in python_identity */
};

/*
 * Thread → address of its PyThreadState. Written by walks of the thread list, for each
 * thread that they pass; read if the scratch belongs to the reader and not to the thread
 * that is read. Without it, the stacks of all threads of a process would take quadratic
 * time. LRU; its entries are verified.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct python_state_key);
	__type(value, __u64);
} python_states SEC(".maps");
#endif

/* Stores the state in t->thread, whose address is t->other. */
static __always_inline void python_state_seen(struct python_thread *t)
{
#ifdef USER_OF_OTHER_TASK
	struct python_state_key key = { .process = t->process };
	__u64 state = t->other;

	if (!python_state_ran(t, state))
		return;
	key.word = python_word(t->thread, 255, t->offsets.at[t->who.field & PY_OFFSET_MASK]);
	bpf_map_update_elem(&python_states, &key, &state, BPF_ANY);
#endif
}

/* bpf_loop: one thread of the list, or the step to the next interpreter. */
PYTHON_STEP(python_thread_step, python_context, c)
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
	python_state_seen(t);
	if (python_is_its_state(t, t->other)) {
		__u64 rank;

		if (t->who.one_interpreter) {
			t->state = t->other;
			return 1;
		}
		/* Among equals the last one counts: the main interpreter ends the list. */
		rank = python_thread_rank(t);
		if (rank <= t->who.rank) {
			t->who.rank = rank;
			t->state = t->other;
		}
	}
	t->other = PY_THREAD(t, PY_THREAD_NEXT);
	return 0;
}

/* Address of the list's pointer to the state in t->thread: the `next` of its predecessor,
 * or the interpreter's head. `prev` is right before `next` in every version, `interp`
 * after. */
static __always_inline __u64 python_thread_link(struct python_thread *t)
{
	__u32 next = t->offsets.at[PY_THREAD_NEXT];
	__u64 previous = python_word(t->thread, 255, next - 8);

	if (previous)
		return previous + next;
	return python_word(t->thread, 255, next + 8) + t->offsets.at[PY_INTERPRETER_THREADS];
}

/*
 * Reads the state that was verified to be the thread's in the same tick. If it has frames it
 * is still alive: a freed one has none, and allocators overwrite its links, or its frame by
 * a size, which is odd. A state without frames, such as those of autograd's threads, is
 * alive if the list points to it. An interpreter that the same thread has created meanwhile
 * is not seen before the tick ends; creating one takes at least 3 ms.
 */
static __noinline bool python_thread_proved(struct python_thread *t)
{
#ifdef USER_OF_OTHER_TASK
	return false; /* a different task each time */
#else
	struct python_proof *p = &t->proof;
	__u32 next = t->offsets.at[PY_THREAD_NEXT];
	__u64 words[PY_THREAD_FEW / 8]; /* see user_read_words() */
	__u64 frame;

	if (p->tick != t->tick || p->state != t->state)
		return false;
	if (t->offsets.thread_bytes <= sizeof(words)) {
		if (user_copy(&t->fault, words, sizeof(words), t->state))
			return false;
		__builtin_memcpy(t->thread, words, sizeof(words));
	} else if (user_copy(&t->fault, t->thread, PY_THREAD_BYTES, t->state)) {
		return false;
	}
	if (!python_is_its_state(t, t->state) ||
	    python_word(t->thread, 255, next - 8) != p->previous ||
	    python_word(t->thread, 255, next) != p->next)
		return false;
	frame = PY_THREAD(t, PY_THREAD_FRAME);
	if (frame && !python_in_state(t->state, frame))
		return !(frame & 7);
	return !user_copy(&t->fault, words, sizeof(*words), python_thread_link(t)) &&
	       words[0] == t->state;
#endif
}

/* Stores that the state in t->thread was alive. */
static __always_inline void python_thread_prove(struct python_thread *t)
{
	struct python_proof *p = &t->proof;
	__u32 next = t->offsets.at[PY_THREAD_NEXT];

	p->tick = t->tick;
	p->state = t->state;
	p->previous = python_word(t->thread, 255, next - 8);
	p->next = python_word(t->thread, 255, next);
	p->frame = p->entry = 0;
}

/*
 * Reads the current thread's PyThreadState into t->thread, looking it up in the
 * interpreters' lists if it is unknown. 0; -ESRCH if it is not a thread of Python;
 * -EFAULT with the address in t->fault.
 */
PYTHON_GLOBAL long python_thread_read(PYTHON_T())
{
	PYTHON_TAKE_T;
	struct python_context c = { .t = t };
	__u64 head, first = 0, next = 0;

	if (!t)
		return -EINVAL;
	t->tick = bpf_jiffies64();
	python_identify(t);
	if (python_thread_proved(t))
		return 0;
	if (user_read(&t->fault, &t->interpreter, sizeof(t->interpreter),
		      t->runtime + t->offsets.at[PY_RUNTIME_INTERPRETERS]))
		return -EFAULT;
#ifdef USER_OF_OTHER_TASK
	if (!t->state) {
		struct python_state_key key = { .process = t->process, .word = t->who.word };
		__u64 *known = bpf_map_lookup_elem(&python_states, &key);

		if (known)
			t->state = *known;
	}
#endif
	/* New interpreters, too, are inserted at the head. */
	if (t->state && t->interpreter == t->only_interpreter) {
		__u64 back = 0;

		/*
		 * A freed state keeps most of its bytes. It is alive if the list
		 * still points to it; free() overwrites both links.
		 */
		if (user_read(&t->fault, t->thread, PY_THREAD_BYTES, t->state))
			goto search;
		if (!python_is_its_state(t, t->state))
			goto search;
		if (!user_copy(&t->fault, &back, sizeof(back), python_thread_link(t)) &&
		    back == t->state) {
			python_thread_prove(t);
			return 0;
		}
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
		if (!python_is_who(&t->who, first))
			return -ESRCH;
	}
	LOOP(PY_MAX_THREADS, python_thread_step, &c);
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

/*
 * Finds the interpreter of the state in t->thread if there are several: a later one may
 * reuse the addresses of one that has ended, and from 3.13 on its numbers of code
 * objects. PyInterpreterState.id, 0 for the main one, is not reused; it follows `next`,
 * as `interp` does in the thread's state. 0 or -EFAULT.
 */
static __always_inline long python_thread_interpreter(struct python_thread *t)
{
	t->interpreter_id = 0;
	if (t->only_interpreter || t->offsets.minor < 12)
		return 0;
	return user_read(&t->fault, &t->interpreter_id, sizeof(t->interpreter_id),
			 python_word(t->thread, 255, t->offsets.at[PY_THREAD_NEXT] + 8) +
				 t->offsets.at[PY_INTERPRETER_NEXT] + 8);
}

/* Finds the innermost frame of the state in t->thread. 0 or -EFAULT. */
static __always_inline long python_thread_frame(struct python_thread *t, __u64 *frame)
{
	if (python_thread_interpreter(t))
		return -EFAULT;
	*frame = PY_THREAD(t, PY_THREAD_FRAME);
	if (t->offsets.at[PY_CFRAME_FRAME] == PY_NONE || !*frame)
		return 0;
	return user_read(&t->fault, frame, sizeof(*frame), *frame + t->offsets.at[PY_CFRAME_FRAME]);
}

#endif
