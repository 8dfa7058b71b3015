/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_PYTHON_H
#define GPU_GADGETS_PYTHON_PYTHON_H

#include "python/unwind/frames.h"
#include "python/runtime/process.h"

/*
 * python: the Python call stack of the current thread, unwound in the kernel from the
 * first event of a process on: without an agent, a file or setup by user space. CPython
 * 3.7 – 3.15, and the free-threaded build of 3.13. Tested on Linux 6.1 and 6.18; bpf_loop
 * needs 5.17, sleepable uprobes need 6.0.
 *
 * Everything in the traced process may be hostile: loops are bounded, every read
 * may fail, and addresses are only used to read user memory.
 *
 * Its cost for the program that calls one of the two entry points, once: about 41,000
 * verified instructions, 320 of the 512 bytes of stack, and 7 of the 8 nested calls,
 * including the program. A thread takes 8 KB from its first event until it ends.
 */

#ifdef LINUX_5_10
/* Loads the state of the current thread into t, which served another one. */
static __noinline int python_remember(struct python_thread *t)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct python_known *known;

	if (t->owner == thread)
		return 0;
	t->owner = thread;
	t->noted = t->process = 0;
	t->proof.tick = 0;
	known = bpf_map_lookup_elem(&python_threads, &thread);
	if (!known)
		return 0;
	__builtin_memcpy(t, known->head, sizeof(known->head));
	t->offsets = known->offsets;
	t->noted = t->process ^ t->state ^ t->absent_until_ns;
	return 0;
}

/* Stores it for the thread's next event, on any CPU. */
static __noinline int python_note(struct python_thread *t)
{
	__u64 thread = t->owner, now = t->process ^ t->state ^ t->absent_until_ns;
	struct python_known known;

	if (t->noted == now)
		return 0;
	t->noted = now;
	__builtin_memcpy(known.head, t, sizeof(known.head));
	known.offsets = t->offsets;
	bpf_map_update_elem(&python_threads, &thread, &known, BPF_ANY);
	return 0;
}
#endif

/*
 * One attempt. `again`: it follows a fault that was resolved. 0; -EFAULT with the address
 * in `fault`, not counted; -ENOENT: no storage, or it is in use because a profiling
 * interrupt hit an unwind of its own thread.
 */
#ifdef LINUX_5_10
static __always_inline
#else
PYTHON_GLOBAL
#endif
long python_try(struct stack *s, struct user_fault *fault, __u64 process, bool again)
{
	struct python_thread *t = python_here(BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 frame;
	long status, err;

	if (!s || !fault)
		return -EINVAL;
	s->flags &= ~(STACK_HAS_PYTHON | STACK_PYTHON_TRUNCATED | STACK_PYTHON_INCOMPLETE |
		      STACK_PYTHON_ENTERED | STACK_PYTHON_RUNS);
	s->python_count = 0;
	if (!t || t->busy) {
		drop(DROP_SCRATCH);
		return -ENOENT;
	}
	t->busy = 1;
#ifdef LINUX_5_10
	python_remember(t);
#endif
#ifndef USER_OF_OTHER_TASK
	if (t->process != process) /* it has to be searched */
		t->task = bpf_get_current_task();
#endif
	t->fault.count = 0;
	if (!again)
		t->line_bytes = 0;
	err = 0;
	status = python_know_process(t, process, again);
	if (status == PYTHON_FOUND) {
		s->flags |= STACK_HAS_PYTHON;
		t->fault.count = 0;
		err = python_thread_read(PYTHON_GIVE(t));
		if (!err)
			err = python_thread_frame(t, &frame);
		if (!err) {
			python_walk_frames(t, s, frame);
			err = t->fault.count ? -EFAULT : 0;
			if (err)
				t->proof.tick = 0;
		} else if (err == -EFAULT) {
			s->flags |= STACK_PYTHON_INCOMPLETE;
		} else {
			drop(DROP_PYTHON_THREAD);
			err = 0;
		}
	} else if (status == PYTHON_UNREADABLE) {
		s->flags |= STACK_PYTHON_INCOMPLETE;
		err = -EFAULT;
	} else if (status == PYTHON_UNSUPPORTED) {
		drop(DROP_PYTHON_UNSUPPORTED);
	}
	*fault = t->fault;
#ifdef LINUX_5_10
	python_note(t);
#endif
	t->busy = 0;
	return err;
}

/*
 * Fills s->python, s->python_count and the STACK_* flags for the current thread, which
 * runs in `process` (process_id_of()). s is a map value. Returns 0, also if there is no
 * Python; -EFAULT if a page was missing: s has the part that could be read, and `fault`
 * the last address. Losses are counted.
 */
static __always_inline long python_unwind(struct stack *s, struct user_fault *fault,
					  __u64 process)
{
	long err = python_try(s, fault, process, false);

	if (err == -EFAULT)
		drop(DROP_PYTHON_FAULT);
	return err;
}

/* Maximum pages faulted in for one stack: in a forked child of a process with many
 * libraries, one or two are missing for each. */
#define PY_MAX_FAULTS 1024

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
/*
 * At sched_process_fork, which runs in the parent, for gadgets in which no program may
 * sleep (stock ig): the pages that a search reads are missing in the child, so it
 * inherits the interpreter of its parent (python_inherit()). A parent without events of
 * its own, such as that of a pool of workers, is searched here, once; only programs whose
 * name begins with python, because this runs for every fork on the machine.
 */
static __always_inline int python_forks(struct task_struct *parent, struct task_struct *child)
{
#ifndef LINUX_5_10 /* there ig-gpu faults the pages in */
	__u64 process = process_id_of(parent);
	struct python_thread *t;
	const unsigned char *name;
	char head[8] = {};

	if (parent->tgid == child->tgid) /* a thread */
		return 0;
	name = BPF_CORE_READ(parent, mm, exe_file, f_path.dentry, d_name.name);
	if (!name || bpf_probe_read_kernel_str(head, sizeof(head), name) < 0 ||
	    __builtin_memcmp(head, "python", 6))
		return 0;
	if (bpf_map_lookup_elem(&python_by_process, &process))
		return 0;
	t = python_here(BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t || t->busy)
		return 0; /* it is being searched */
	t->busy = 1;
	t->task = bpf_get_current_task();
	t->search.module = 0;
	python_search_process(process, false);
	t->busy = 0;
#endif
	return 0;
}
#endif

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
struct python_retry {
	struct stack *s;
	__u64 process;
	struct user_fault fault;
	bool again;
	long err;
};
#endif

/* bpf_loop: one attempt, and the missing page if it failed. */
static long python_retry_step(__u32 i, struct python_retry *r)
{
	r->err = python_try(r->s, &r->fault, r->process, r->again);
	r->again = true;
	if (r->err != -EFAULT || !r->fault.count)
		return 1;
	return user_fault_in(&r->fault) ? 1 : 0;
}

/*
 * As python_unwind(), for sleepable programs: faults missing pages in and tries again.
 * -EFAULT only for memory that is not mapped.
 */
static __always_inline long python_unwind_sleepable(struct stack *s, __u64 process)
{
	struct python_retry r = { .s = s, .process = process };

	/* Nearly always the only attempt. */
	if (!python_retry_step(0, &r))
		bpf_loop(PY_MAX_FAULTS, python_retry_step, &r, 0);
	if (r.err == -EFAULT)
		drop(DROP_PYTHON_FAULT);
	return r.err;
}

#endif
