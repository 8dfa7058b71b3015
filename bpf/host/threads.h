/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HOST_THREADS_H
#define GPU_GADGETS_HOST_THREADS_H

#include "host/events.h"
#include "host/files.h"

/*
 * threads: the state of a watched thread: since when it has been running or sleeping, and
 * the system call that it is in.
 */
struct host_thread {
	__u64 process;	     /* process that the other fields belong to */
	__u64 ran_since;     /* boot ns; 0: not running, or unknown */
	__u64 slept_since;
	__u64 called_at;     /* boot ns; 0: in no system call */
	__u64 arguments[3];  /* its first three arguments */
	__s32 syscall;
	__u32 state;	     /* enum host_state */
	char file[HOST_FILE_BYTES];
	char wchan[WCHAN_BYTES];
	struct wchan_scratch scratch;
};

/*
 * Thread id → its state. Written and read by the programs below at context switches,
 * where memory cannot be allocated: preallocated. LRU: if a thread's entry was evicted,
 * its next slice is missing. User space sets the size.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_thread);
} host_thread_by_tid SEC(".maps");

/* [0]: initial value of an entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_thread);
} host_thread_unused SEC(".maps");

static __always_inline struct host_thread *host_thread(__u32 tid, __u64 process)
{
	struct host_thread *t = bpf_map_lookup_elem(&host_thread_by_tid, &tid);
	__u32 zero = 0;
	void *unused;

	if (!t) {
		unused = bpf_map_lookup_elem(&host_thread_unused, &zero);
		if (!unused || bpf_map_update_elem(&host_thread_by_tid, &tid, unused, BPF_NOEXIST))
			return 0;
		t = bpf_map_lookup_elem(&host_thread_by_tid, &tid);
		if (!t)
			return 0;
	}
	if (t->process != process) {
		t->process = process;
		t->ran_since = t->slept_since = t->called_at = 0;
	}
	return t;
}

/* include/linux/sched.h */
#define TASK_UNINTERRUPTIBLE_BIT 2
#define TASK_STOPPED_BIT 4
#define TASK_TRACED_BIT 8

static __always_inline __u32 host_state_of(struct task_struct *task, bool preempted)
{
	__u32 state = task->__state;

	if (preempted || !state)
		return HOST_PREEMPTED;
	if (state & (TASK_STOPPED_BIT | TASK_TRACED_BIT))
		return HOST_STOPPED;
	return state & TASK_UNINTERRUPTIBLE_BIT ? HOST_BLOCKED : HOST_SLEEPING;
}

/* The task is switched out. */
static __always_inline void host_out(struct task_struct *task, bool preempted)
{
	__u64 process, now = bpf_ktime_get_boot_ns();
	struct host_thread *t;
	struct host_event *e;

	if (!host_watches(task, &process))
		return;
	t = host_thread(task->pid, process);
	if (!t) {
		drop(DROP_SCRATCH);
		return;
	}
	if (t->ran_since) {
		e = host_event(task, process, HOST_RAN, t->ran_since, now);
		if (e) {
			e->cpu = bpf_get_smp_processor_id();
			ring_submit(&host_ring, e, true);
		}
	}
	t->ran_since = 0;
	t->slept_since = now;
	t->state = host_state_of(task, preempted);
}

/* The task is switched in. Its kernel stack is still the one with which it slept. */
static __always_inline void host_in(struct task_struct *task)
{
	__u64 process, now = bpf_ktime_get_boot_ns();
	struct host_thread *t;
	struct host_event *e;

	if (!host_watches(task, &process))
		return;
	t = host_thread(task->pid, process);
	if (!t) {
		drop(DROP_SCRATCH);
		return;
	}
	if (t->slept_since) {
		t->wchan[0] = 0;
		if (t->state != HOST_PREEMPTED)
			wchan(&t->scratch, t->wchan, task);
		e = host_event(task, process, HOST_SLEPT, t->slept_since, now);
		if (e) {
			e->state_raw = t->state;
			__builtin_memcpy(e->wchan, t->wchan, sizeof(e->wchan));
			ring_submit(&host_ring, e, true);
		}
	}
	t->slept_since = 0;
	t->ran_since = now;
}

static __always_inline void host_call(struct pt_regs *regs, __s32 number)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct host_thread *t;
	__u64 process;
	__s32 fd;

	if (HOST_IS_PROBE(number) || !host_watches(task, &process))
		return;
	t = host_thread(task->pid, process);
	if (!t) {
		drop(DROP_SCRATCH);
		return;
	}
	t->syscall = number;
	for (int i = 0; i < 3; i++)
		t->arguments[i] = host_argument(regs, i);
	t->file[0] = 0;
	fd = host_fd(regs, number);
	if (fd >= 0)
		host_file(t->file, task, fd);
	t->called_at = bpf_ktime_get_boot_ns();
}

static __always_inline void host_returned(__s64 result)
{
	__u64 process, now = bpf_ktime_get_boot_ns(), path;
	struct task_struct *task = bpf_get_current_task_btf();
	struct host_thread *t;
	struct host_event *e;

	if (!host_watches(task, &process))
		return;
	t = host_thread(task->pid, process);
	if (!t || !t->called_at)
		return; /* it was entered before attach */
	e = host_event(task, process, HOST_SYSCALL, t->called_at, now);
	t->called_at = 0;
	if (!e)
		return;
	e->syscall = t->syscall;
	e->result = result;
	e->bytes = host_bytes(t->syscall, t->arguments[1], result);
	__builtin_memcpy(e->file, t->file, sizeof(e->file));
	path = host_path(t->syscall, t->arguments);
	if (path)
		bpf_probe_read_user_str(e->file, sizeof(e->file), (void *)path);
	ring_submit(&host_ring, e, true);
}

#endif
