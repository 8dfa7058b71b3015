/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_RUNTIME_PROCESS_H
#define GPU_GADGETS_PYTHON_RUNTIME_PROCESS_H

#include "python/runtime/discover.h"
#include "python/runtime/thread.h"

/*
 * process: the interpreter of a process, its address and the layout of its structs. The
 * map's value is in python/runtime/state.h.
 */
#ifndef MAX_PYTHON_PROCESSES
#define MAX_PYTHON_PROCESSES 4096
#endif

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
/*
 * Process id (process/process.h) → its interpreter. Written at a process's first events;
 * read once per thread by the programs, and by user space, which finds the mapping of the
 * interpreter by `runtime`. LRU: an evicted process is searched again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_PYTHON_PROCESSES);
	__type(key, __u64);
	__type(value, struct python_process);
} python_by_process SEC(".maps");
#endif

/* Delay after a failed search: 16 ms, doubled each time up to 16 s. */
#define PY_RETRY_NS (16ULL * 1000 * 1000)
#define PY_RETRY_DOUBLINGS 10

/* bpf_loop: one offset from _Py_DebugOffsets. */
PYTHON_STEP(python_debug_step, python_context, c)
{
	struct python_offset_walk *w = &c->t->offset;
	__u32 row = (w->minor - PY_MINOR_FIRST) & PY_ROW_MASK;
	__u64 value;
	__u16 at;

	i &= PY_OFFSET_MASK;
	at = python_known_offsets[row][i];
	if (at == PY_NONE) {
		c->t->offsets.at[i] = PY_NONE;
		return 0;
	}
	if (user_read(&c->t->fault, &value, sizeof(value), w->runtime + at)) {
		w->err = -EFAULT;
		return 1;
	}
	if (value > python_largest_offset[i]) {
		w->err = -EINVAL;
		return 1;
	}
	c->t->offsets.at[i] = value;
	return 0;
}

/* bpf_loop: one offset from the table. */
PYTHON_STEP(python_table_step, python_context, c)
{
	struct python_offset_walk *w = &c->t->offset;
	__u32 row = (w->minor - PY_MINOR_FIRST) & PY_ROW_MASK;

	i &= PY_OFFSET_MASK;
	c->t->offsets.at[i] = python_known_offsets[row][i];
	return 0;
}

/* Fills t->offsets. 0; -EFAULT; -EINVAL: an unknown version. */
PYTHON_GLOBAL long python_load_offsets(PYTHON_T(__u64 runtime, __u32 version,
				       bool free_threaded))
{
	PYTHON_TAKE_T;
	struct python_context c = { .t = t };
	struct python_offset_walk *w;
	struct python_offsets *o;
	__u32 end;

	if (!t)
		return -EINVAL;
	o = &t->offsets;
	w = &t->offset;
	w->runtime = runtime;
	w->err = 0;
	w->minor = (version >> 16) & 0xff;
	if (version >> 24 != 3 || w->minor < PY_MINOR_FIRST || w->minor > PY_MINOR_LAST)
		return -EINVAL;
	/* 3.14t gives each thread its own bytecode; never run against. */
	if (free_threaded && w->minor > 13)
		return -EINVAL;
	if (w->minor <= PY_MINOR_TABLE)
		LOOP(PY_OFFSET_COUNT, python_table_step, &c);
	else
		LOOP(PY_OFFSET_COUNT, python_debug_step, &c);
	if (w->err)
		return w->err;
	o->minor = w->minor;
	o->free_threaded = free_threaded;
	if (w->minor > PY_MINOR_TABLE) {
		/* Both follow fields of the same struct: Include/cpython/code.h and
		 * unicodeobject.h of 3.13, 3.14 and 3.15. */
		o->at[PY_CODE_VERSION] = o->at[PY_CODE_FIRSTLINE] + 24;
		o->at[PY_STRING_COMPACT] = o->at[PY_STRING_ASCII] + 16;
	}
	if (w->minor < 11) {
		end = PY_OLD_FRAME_BYTES; /* f_localsplus, much further on, is read separately */
	} else {
		end = o->at[PY_FRAME_INSTR] + 8;
		if (end < o->at[PY_FRAME_OWNER] + 1)
			end = o->at[PY_FRAME_OWNER] + 1;
	}
	o->frame_bytes = (end + 7) & ~7;
	o->string_bytes = o->at[PY_STRING_STATE] + 8;
	end = o->at[PY_THREAD_NEXT] + 16; /* with interp */
	if (end < o->at[PY_THREAD_FRAME] + 8)
		end = o->at[PY_THREAD_FRAME] + 8;
	if (end < o->at[PY_THREAD_ID] + 8)
		end = o->at[PY_THREAD_ID] + 8;
#if !defined(bpf_target_x86) && !defined(__TARGET_ARCH_x86) /* see python_identify() */
	if (o->at[PY_THREAD_NATIVE_ID] != PY_NONE && end < o->at[PY_THREAD_NATIVE_ID] + 8)
		end = o->at[PY_THREAD_NATIVE_ID] + 8;
#endif
	o->thread_bytes = end;
	return 0;
}

/*
 * The version of the interpreter at s->value, whose module is in t->search, and
 * its offsets. 0; -EFAULT; -EINVAL: an unknown version, stored in *version.
 */
static __always_inline long python_identify_version(struct python_thread *t, __u64 runtime,
						    __u32 *version)
{
	__u64 head[3]; /* cookie, version, free_threaded */
	__u64 hex;
	long found;

	t->fault.count = 0;
	if (user_read(&t->fault, head, sizeof(head), runtime))
		return -EFAULT;
	if (head[0] == PY_DEBUG_COOKIE) {
		*version = head[1];
		return python_load_offsets(PYTHON_GIVE(t, runtime, head[1], head[2] & 1));
	}
	found = python_find_symbol(PYTHON_GIVE(t, PY_ELF_VERSION));
	if (found < 0)
		return found;
	if (found) {
		if (user_read(&t->fault, &hex, sizeof(hex), t->search.value))
			return -EFAULT;
		*version = hex;
		/* From 3.13 on the cookie must be present. */
		if (((hex >> 16) & 0xff) > PY_MINOR_TABLE)
			return -EINVAL;
		return python_load_offsets(PYTHON_GIVE(t, runtime, hex, false));
	}
	/* Older ones are distinguished by the functions that each added to the C API. */
	*version = 0x030a0000;
	for (__u32 which = PY_ELF_ADD_OBJECT_REF; which <= PY_ELF_POS_ONLY_ARGS; which++) {
		found = python_find_symbol(PYTHON_GIVE(t, which));
		if (found < 0)
			return found;
		if (found)
			break;
		*version -= 0x10000;
	}
	return python_load_offsets(PYTHON_GIVE(t, runtime, *version, false));
}

/*
 * Copies the interpreter of the parent if this process is a fork of it: page tables that
 * a search needs may be missing in a child. The caller checks that the thread is found
 * there.
 */
static __noinline long python_inherit(struct python_thread *t)
{
	struct task_struct *task = task_current();
	struct task_struct *parent = TASK_READ(task, real_parent);
	struct mm_struct *mine, *theirs;
	struct python_process *known;
	__u64 id;

#ifdef USER_OF_OTHER_TASK
	/* Not needed here: every page can be read. And the parent would be the reader's. */
	return -ESRCH;
#endif
	/* The randomised stack and the file show that both run the same exec. */
	if (TASK_READ(parent, self_exec_id) != TASK_READ(task, self_exec_id))
		return -ESRCH;
	mine = TASK_READ(task, mm);
	theirs = TASK_READ(parent, mm);
	if (!mine || !theirs || TASK_READ(theirs, start_stack) != TASK_READ(mine, start_stack) ||
	    TASK_READ(theirs, exe_file) != TASK_READ(mine, exe_file))
		return -ESRCH;
	id = process_id_of(parent);
	known = bpf_map_lookup_elem(&python_by_process, &id);
	if (!known || known->status != PYTHON_FOUND)
		return -ESRCH;
	t->found = *known;
	return 0;
}

/* At the end of a process, so that user space sees live ones only. Not needed otherwise,
 * because every map here is LRU or ends with the thread. */
static __always_inline void python_process_gone(__u64 process)
{
	bpf_map_delete_elem(&python_by_process, &process);
}

static __always_inline void python_adopt(struct python_thread *t, __u64 process,
					 const struct python_process *p)
{
	t->process = process;
	t->runtime = p->runtime;
	t->state = 0;
	t->absent_head = 0;
	t->only_interpreter = 0;
	t->reloads = 0;
	t->proof.tick = 0;
	t->offsets = p->offsets;
}

/* Searches the process for an interpreter and remembers the answer. */
PYTHON_GLOBAL long python_search_process(__u64 process, bool again)
{
	struct python_thread *t = python_here(0);
	struct python_process *p, *old;
	__u64 now = bpf_ktime_get_boot_ns();
	__u32 doublings;
	long err;

	if (!t)
		return -EINVAL;
	p = &t->found;
	__builtin_memset(p, 0, sizeof(*p));
	old = bpf_map_lookup_elem(&python_by_process, &process);
	if (old) {
		p->tries = old->tries;
		p->retry_ns = old->retry_ns;
	}
	err = python_find_runtime(t);
	if (err > 0) {
		p->runtime = t->search.value;
		err = python_identify_version(t, p->runtime, &p->version);
		p->status = err ? PYTHON_UNSUPPORTED : PYTHON_FOUND;
	} else {
		p->status = PYTHON_ABSENT;
	}
	if (err == -EFAULT) {
		p->status = PYTHON_UNREADABLE;
	} else {
		t->search.module = 0;
	}
	if (p->status == PYTHON_FOUND) {
		p->offsets = t->offsets;
		python_adopt(t, process, p);
	} else if (again || now >= p->retry_ns) { /* else another thread's search has not ended */
		doublings = again ? p->tries : p->tries++;
		if (doublings > PY_RETRY_DOUBLINGS)
			doublings = PY_RETRY_DOUBLINGS;
		p->retry_ns = now + (PY_RETRY_NS << doublings);
	}
	/* What another thread has found meanwhile stays. */
	old = bpf_map_lookup_elem(&python_by_process, &process);
	if (!old || old->status != PYTHON_FOUND)
		bpf_map_update_elem(&python_by_process, &process, p, BPF_ANY);
	return p->status;
}

/*
 * Sets t up for `process`. Returns a python_status; FOUND: t->runtime and t->offsets are
 * valid. `again`: the call follows a fault that was resolved.
 */
static __always_inline long python_know_process(struct python_thread *t, __u64 process, bool again)
{
	struct python_process *known;

	if (t->process == process)
		return PYTHON_FOUND;
	known = bpf_map_lookup_elem(&python_by_process, &process);
	if (known) {
		if (known->status == PYTHON_FOUND) {
			python_adopt(t, process, known);
			return PYTHON_FOUND;
		}
		if (known->status == PYTHON_UNSUPPORTED)
			return PYTHON_UNSUPPORTED;
		/* The first search may wait for a page in another thread: this one searches, too. */
		if (!again && bpf_ktime_get_boot_ns() < known->retry_ns &&
		    (known->status != PYTHON_UNREADABLE || known->tries > 1))
			return known->status;
	} else if (!python_inherit(t)) {
		python_adopt(t, process, &t->found);
		if (!python_thread_read(PYTHON_GIVE(t))) {
			bpf_map_update_elem(&python_by_process, &process, &t->found, BPF_ANY);
			return PYTHON_FOUND;
		}
		t->process = 0;
	}
	if (!again)
		t->search.module = 0;
	return python_search_process(process, again);
}

#endif
