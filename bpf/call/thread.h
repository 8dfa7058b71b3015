/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_THREAD_H
#define GPU_GADGETS_CALL_THREAD_H

#include "process/facts.h"
#include "stack/stack.h"
#include "process/user.h"
#include "program/storage.h"
#include "call/backward.h"
#include "call/device.h"

/*
 * thread: what is remembered of one thread between the probes it hits: the
 * call it is in, the contexts it made current, and room to build a stack in.
 * Include it after the definition of `struct inflight`, which is what a gadget
 * remembers of a call. It begins with `sp`, at entry, 0 where the thread is in
 * no call; and `ip`, of the probe. Task storage, because it ends with the thread
 * by itself and because uprobe programs may be preempted (per-CPU scratch would be
 * overwritten).
 */

/* cuCtxPushCurrent deeper than this is followed with the device unknown. */
#define THREAD_CONTEXTS 8

struct thread_context {
	__u64 handle;
	__s32 device; /* -1: unknown */
	__u32 pad;
};

struct thread {
	__u64 process; /* whom the rest belongs to: task storage survives exec */
	__u32 exec_id; /* the part of it that changes while the thread lives */
	__u32 contexts;
	__s32 device_hint; /* where no context is known; -1: nor is it */
	__u32 pad;
	/* The cuCtxGetDevice that the thread is in, at entry, and its argument; sp 0: none.
	 * Not in `call`: it is probed at times only, so its return may not be seen. */
	__u64 device_sp, device_at;
	struct thread_context context[THREAD_CONTEXTS];
	struct inflight call;
#ifndef LINUX_5_10
	struct backward_thread backward;
#endif
	struct user_fault fault;
	__u64 stack_id; /* the newest stack known to be in stacks_by_id */
	__u64 taken;	/* call/capture.h */
	struct stack stack;
};

#ifdef LINUX_5_10
#ifndef MAX_THREADS
#define MAX_THREADS 8192
#endif

/*
 * Thread id → its state. Written and read by its own probes; deleted at its end.
 * Preallocated: 22 MB.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, struct thread);
} thread_by_task SEC(".maps");

/* [0]: zeroes. A new entry needs a value, and this one is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread);
} thread_unused SEC(".maps");

/* The state of the current thread, made for its process. NULL: there is no room. */
static __always_inline struct thread *thread_make(__u32 tid, __u64 process)
{
	__u32 zero = 0;
	void *unused = bpf_map_lookup_elem(&thread_unused, &zero);

	if (!unused || !FACT_ADD(process, QUOTA_THREADS, MAX_THREADS,
				 bpf_map_update_elem(&thread_by_task, &tid, unused, BPF_NOEXIST)))
		return 0;
	return bpf_map_lookup_elem(&thread_by_task, &tid);
}

static __always_inline struct thread *thread_of(struct task_struct *task)
{
	__u32 tid = task->pid;

	return bpf_map_lookup_elem(&thread_by_task, &tid);
}

static __always_inline void thread_gone(struct task_struct *task)
{
	__u32 tid = task->pid;

	if (!bpf_map_delete_elem(&thread_by_task, &tid))
		QUOTA_GIVE(QUOTA_THREADS);
}
#else
/* Thread → its state. Written and read by its own probes only. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} thread_by_task SEC(".maps");

/* The state of a task that a BTF program was given. */
static __always_inline struct thread *thread_of(struct task_struct *task)
{
	return bpf_task_storage_get(&thread_by_task, task, 0, 0);
}

static __always_inline void thread_gone(struct task_struct *task)
{
}
#endif

/*
 * The current thread's state, if it was made for the program that the process runs now;
 * else NULL. Without the process's id, which costs as much as finding the state does.
 */
static __always_inline struct thread *thread_known(void)
{
	struct task_struct *task = task_current();
#ifdef LINUX_5_10
	/* By thread id, which another thread may have had. */
	__u32 tid = bpf_get_current_pid_tgid();
	struct thread *t = bpf_map_lookup_elem(&thread_by_task, &tid);

	return t && t->process == process_id_of(task) ? t : 0;
#else
	struct thread *t = bpf_task_storage_get(&thread_by_task, task, 0, 0);

	return t && t->exec_id == process_exec_id(task) ? t : 0;
#endif
}

/* The current thread's state; made if `create`. NULL: no memory, or not there. */
static __always_inline struct thread *thread_current(__u64 process, bool create)
{
	struct task_struct *task = task_current();
#ifdef LINUX_5_10
	__u32 tid = bpf_get_current_pid_tgid();
	struct thread *t = bpf_map_lookup_elem(&thread_by_task, &tid);

	if (!t && create)
		t = thread_make(tid, process);
#else
	struct thread *t =
		storage_get(&thread_by_task, task, create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
#endif

	if (t && t->process != process) {
		t->process = process;
		t->exec_id = process_exec_id(task);
		t->contexts = 0;
		t->device_hint = device_at_start(task);
		t->call.sp = 0;
		t->device_sp = 0;
#ifndef LINUX_5_10
		t->backward.variable = t->backward.begun = 0;
		t->backward.searches = 0;
#endif
		t->stack_id = 0;
		__builtin_memset(t->stack.native, 0, sizeof(t->stack.native));
	}
	return t;
}

#endif
