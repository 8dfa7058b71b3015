/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROGRAM_STORAGE_H
#define GPU_GADGETS_PROGRAM_STORAGE_H

/*
 * storage: entries of BPF_MAP_TYPE_TASK_STORAGE.
 *
 * Before Linux 7.0 (4a98c2efa613, "bpf: Remove task local storage percpu counter") none can be made
 * while another thread is in such a call on the same processor: one that was preempted there, or
 * waits for memory, which a program that may sleep does. A call by a thread without state is not
 * recorded. With preemption off no thread is left in there, and memory is not waited for; only where there
 * is none at once it is, as before.
 */

#ifndef LINUX_5_10

/* Linux 6.10. */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* The entry of `task`. NULL: there is none, or, with BPF_LOCAL_STORAGE_GET_F_CREATE, no memory. */
static __always_inline void *storage_get(void *map, struct task_struct *task, __u64 flags)
{
	void *entry = bpf_task_storage_get(map, task, 0, 0); /* nearly always there */

	if (entry || !flags)
		return entry;
	if (bpf_preempt_disable) {
		bpf_preempt_disable();
		entry = bpf_task_storage_get(map, task, 0, flags);
		bpf_preempt_enable();
	}
	/* Or with waiting for memory, if the program may. */
	return entry ? entry : bpf_task_storage_get(map, task, 0, flags);
}

#endif

#endif
