/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_SAMPLE_ROWS_H
#define GPU_GADGETS_SAMPLE_ROWS_H

#include "drops.h"
#include "process.h"

/*
 * sample_rows: how often each stack was met, by (process, thread, stack). As the
 * rows of cuda_alloc, counters only grow and are read without being cleared.
 */
#ifndef MAX_ROWS
#define MAX_ROWS 32768
#endif
#define MAX_PROCESSES 8192

struct row_key {
	__u64 process;
	__u64 stack; /* key of stacks_by_id; 0: [unknown] */
	__u32 tid;   /* 0: of all threads together */
	__u32 pad;
};

struct row {
	__u64 samples;
	__u64 gil; /* of these, how many while the thread held the GIL */
};

/* As in cuda_rows.h: what cleans up after processes reads the last word. */
struct process {
	struct gadget_process proc;
	__u64 start_boot_ns;
	__u64 exit_boot_ns; /* 0: runs */
};

/*
 * Row → counts, preallocated for interrupts (see stack.h). Written by the sampling programs, read by iter/bpf_map_elem.
 * Entries of ended processes are deleted by user space.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct row_key);
	__type(value, struct row);
} rows_by_stack SEC(".maps");

/* Process id → who it is. Written at its first row and at its exit. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, __u64);
	__type(value, struct process);
} processes_by_id SEC(".maps");

/* Who `task`'s process is, in the terms of Inspektor Gadget. */
static __always_inline void process_describe(struct task_struct *task, struct gadget_process *p)
{
	struct task_struct *leader = task->group_leader;
	struct task_struct *parent = task->real_parent;

	p->pid = p->tid = task->tgid;
	p->mntns_id = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	p->creds.uid = BPF_CORE_READ(task, cred, uid.val);
	p->creds.gid = BPF_CORE_READ(task, cred, gid.val);
	bpf_probe_read_kernel(p->comm, sizeof(p->comm), leader->comm);
	p->parent.pid = BPF_CORE_READ(parent, tgid);
	p->parent.tid = BPF_CORE_READ(parent, pid);
	BPF_CORE_READ_STR_INTO(&p->parent.comm, parent, comm);
}

static __noinline int process_remember(struct task_struct *task, __u64 id)
{
	struct process p = {};

	if (bpf_map_lookup_elem(&processes_by_id, &id))
		return 0;
	process_describe(task, &p.proc);
	p.start_boot_ns = task->group_leader->start_boottime;
	if ((int)bpf_map_update_elem(&processes_by_id, &id, &p, BPF_NOEXIST) == -E2BIG)
		drop(DROP_PROCESSES_FULL);
	return 0;
}

static __always_inline void process_gone(__u64 id)
{
	struct process *p = bpf_map_lookup_elem(&processes_by_id, &id);

	if (p && !p->exit_boot_ns)
		p->exit_boot_ns = bpf_ktime_get_boot_ns();
}

/* Counts one sample. */
static __always_inline void row_count(struct row_key *key, struct task_struct *task, bool gil)
{
	struct row fresh = {};
	struct row *row = bpf_map_lookup_elem(&rows_by_stack, key);

	if (!row) {
		process_remember(task, key->process);
		bpf_map_update_elem(&rows_by_stack, key, &fresh, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&rows_by_stack, key);
	}
	if (!row) {
		drop(DROP_ROWS_FULL);
		return;
	}
	__sync_fetch_and_add(&row->samples, 1);
	if (gil)
		__sync_fetch_and_add(&row->gil, 1);
}

#endif
