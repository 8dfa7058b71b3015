/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_PROCESS_H
#define GPU_GADGETS_PROCESS_PROCESS_H

#include "program/linux_5_10.h"

/*
 * process: the identity of a process. It is (tgid, start time, exec count), never
 * a pid alone: pids are reused, and exec gives the same pid another program.
 * The three are mixed into one 64-bit id that serves as a map key.
 */

/* splitmix64's finaliser: every input bit reaches every output bit. */
static __always_inline __u64 mix64(__u64 x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	x ^= x >> 31;
	return x;
}

static __always_inline __u64 process_id(__u32 tgid, __u64 start_boot_ns, __u32 exec_id)
{
	return mix64(start_boot_ns ^ mix64(((__u64)tgid << 32) | exec_id)) | 1;
}

/* Returns how many programs the process of `task` has executed; `task` as for process_id_of(). */
static __always_inline __u32 process_exec_id(struct task_struct *task)
{
	struct task_struct *leader = TASK_READ(task, group_leader);

	return TASK_READ(leader, self_exec_id);
}

/*
 * Returns the id of the process that `task` belongs to; never 0. `task` must be a BTF
 * pointer (bpf_get_current_task_btf(), 5.11+), so that loads are direct: this runs in
 * every probe.
 */
static __always_inline __u64 process_id_of(struct task_struct *task)
{
	struct task_struct *leader = TASK_READ(task, group_leader);

	return process_id(TASK_READ(task, tgid), TASK_READ(leader, start_boottime),
			  TASK_READ(leader, self_exec_id));
}

#endif
