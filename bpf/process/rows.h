/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_ROWS_H
#define GPU_GADGETS_PROCESS_ROWS_H

#include "program/drops.h"
#include "process/process.h"
#include "process/quota.h"

/*
 * rows: the processes that rows belong to, and when they ended.
 */
#define MAX_PROCESSES 8192

/* The last member is read by operators/decode/reap, which deletes the rows of ended processes. */
struct process {
	struct gadget_process proc;
	__u64 start_boot_ns;
	__u64 tenant;	    /* process/quota.h; 0: the gadget has no quotas */
	__u64 exit_boot_ns; /* 0: running. What it still holds then is freed implicitly */
};

/*
 * Process id → the process. Written at its first row and at its exit; deleted by user
 * space some time later.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, PROCESS_MAP_FLAGS);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, __u64);
	__type(value, struct process);
} processes_by_id SEC(".maps");

/*
 * Stores the process of `task`: its main thread, not the thread that was seen first. 0: there is no
 * room. It must have no rows then, which nothing would delete when it ends.
 */
static __always_inline int process_remember(struct task_struct *task, __u64 id)
{
	struct task_struct *parent, *leader;
	struct process p = {};
	int err; /* 32 bits: see stack_store_of() */

	if (bpf_map_lookup_elem(&processes_by_id, &id))
		return 1;
	if (!QUOTA_TAKE_OF(task, QUOTA_PROCESSES, MAX_PROCESSES)) {
		drop(DROP_PROCESSES_FULL);
		return 0;
	}
	parent = TASK_READ(task, real_parent);
	leader = TASK_READ(task, group_leader);
	p.proc.pid = p.proc.tid = TASK_READ(task, tgid);
	p.proc.mntns_id = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	p.proc.creds.uid = BPF_CORE_READ(task, cred, uid.val);
	p.proc.creds.gid = BPF_CORE_READ(task, cred, gid.val);
	bpf_probe_read_kernel(p.proc.comm, sizeof(p.proc.comm), leader->comm);
	p.proc.parent.pid = BPF_CORE_READ(parent, tgid);
	p.proc.parent.tid = BPF_CORE_READ(parent, pid);
	BPF_CORE_READ_STR_INTO(&p.proc.parent.comm, parent, comm);
#ifdef WITH_QUOTAS
	p.tenant = tenant_of(task);
#endif
	p.start_boot_ns = TASK_READ(leader, start_boottime);
	err = bpf_map_update_elem(&processes_by_id, &id, &p, BPF_NOEXIST);
	if (err && err != -EEXIST) {
		drop(DROP_PROCESSES_FULL);
		return 0;
	}
	return 1;
}

/* The same for the current task. A global function: the verifier follows it once. */
__noinline int process_remember_current(__u64 id)
{
	return process_remember(task_current(), id);
}

/* Reports whether there was room for a process; if not, that is counted, and these bytes with it. */
static __always_inline bool process_has_room(__u64 id, __u64 bytes)
{
	if (bpf_map_lookup_elem(&processes_by_id, &id))
		return true;
	drop_add(DROP_PROCESSES_FULL, 0, bytes);
	return false;
}

static __always_inline void process_gone(__u64 id)
{
	struct process *p = bpf_map_lookup_elem(&processes_by_id, &id);

	if (p && !p->exit_boot_ns)
		p->exit_boot_ns = bpf_ktime_get_boot_ns();
}

/* At sched_process_exit: the process's id if `task` was its last thread, else 0. */
static __always_inline __u64 process_exited(struct task_struct *task)
{
	__u64 id;

	if (task->signal->live.counter)
		return 0;
	id = process_id_of(task);
	process_gone(id);
	return id;
}

/* At sched_process_exec: its former identity has ended. begin_new_exec() has already
 * counted this exec. */
static __always_inline void process_replaced(struct task_struct *task)
{
	process_gone(process_id(task->tgid, task->start_boottime, task->self_exec_id - 1));
}

#endif
