/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HOST_EVENTS_H
#define GPU_GADGETS_HOST_EVENTS_H

#include "program/drops.h"
#include "process/rows.h"
#include "program/ring.h"
#include "program/ring_wake.h"
#include "process/selection.h"
#include "host/wchan.h"

/*
 * events: what the threads of watched processes do on the host, as events.
 *
 * Before the programs are loaded, the operator timeline sets the constants, enables the
 * requested programs and sizes the maps. By default the programs are empty and not
 * attached, each map has one entry and the ring its least size. ig recognises a constant by a
 * second variable with its prefix.
 */
#define HOST_CONSTANT(name)              \
	const volatile bool name = false; \
	const volatile bool gadget_var_##name = false

HOST_CONSTANT(host_cpu);
HOST_CONSTANT(host_syscalls);
HOST_CONSTANT(host_memory);
HOST_CONSTANT(host_python);

enum host_kind {
	HOST_RAN = 1,	/* the thread was on a CPU */
	HOST_SLEPT = 2, /* it was not */
	HOST_SYSCALL = 3,
	HOST_SAMPLE = 4, /* its Python stack at one moment */
	HOST_MEMORY = 5, /* resident memory of its process */
};

enum host_state {
	HOST_PREEMPTED = 1, /* runnable, but preempted */
	HOST_SLEEPING = 2,
	HOST_BLOCKED = 3, /* uninterruptible sleep */
	HOST_STOPPED = 4, /* stopped by a signal or a debugger */
};

#define HOST_FILE_BYTES 64

/* One event as user space sees it: the data source `host_events`. */
struct host_event {
	gadget_timestamp timestamp_raw; /* of the end of the event */
	__u64 start_boot_ns, end_boot_ns;
	struct gadget_process proc; /* without its credentials and its parent */
	__u64 process;
	__u64 stack_id;	   /* of HOST_SAMPLE */
	enum host_kind kind_raw;
	enum host_state state_raw; /* of HOST_SLEPT */
	__s32 syscall;	   /* number */
	__u32 cpu;
	__s64 result;	   /* of the call */
	__u64 bytes;	   /* read, written or mapped by the call */
	__u64 file_bytes;  /* of HOST_MEMORY: resident pages of files */
	__u64 anon_bytes;  /* of HOST_MEMORY: other resident pages */
	char file[HOST_FILE_BYTES]; /* or device, of the call: the end of its path */
	char wchan[WCHAN_BYTES];    /* kernel function in which it slept */
};

GADGET_TRACER_MAP(host_ring, LEAST_RING); /* see above */
GADGET_TRACER(host_events, host_ring, host_event);

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

/*
 * Whether the task is watched. If no processes were selected, only those are watched that
 * have called a function which this gadget follows: events of the whole machine would be
 * too many.
 */
static __always_inline bool host_watches(struct task_struct *task, __u64 *process)
{
	if (!task->mm || task->flags & PF_KTHREAD)
		return false;
	if (gadget_filter_by_mntns &&
	    gadget_should_discard_mntns_id(BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum)))
		return false;
	if (selection_on() && !selection_has(task->tgid))
		return false;
	*process = process_id_of(task);
	return selection_on() || gadget_filter_by_mntns ||
	       bpf_map_lookup_elem(&processes_by_id, process);
}

/* Reserves an event for the caller to fill and submit. NULL if there was no room, which
 * is counted. */
static __always_inline struct host_event *host_event(struct task_struct *task, __u64 process,
						     enum host_kind kind, __u64 start, __u64 end)
{
	struct host_event *e = bpf_ringbuf_reserve(&host_ring, sizeof(*e), 0);
	struct task_struct *leader;

	if (!e) {
		drop(DROP_EVENT_FULL);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	leader = task->group_leader;
	e->timestamp_raw = e->end_boot_ns = end;
	e->start_boot_ns = start;
	e->process = process;
	e->kind_raw = kind;
	e->syscall = -1;
	e->proc.pid = task->tgid;
	e->proc.tid = task->pid;
	e->proc.mntns_id = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	bpf_probe_read_kernel(e->proc.comm, sizeof(e->proc.comm), leader->comm);
	return e;
}

#endif
