/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HOST_PROGRAMS_H
#define GPU_GADGETS_HOST_PROGRAMS_H

#ifndef LINUX_5_10

#include "host/memory.h"
#include "host/threads.h"
#include "python/python.h"
#include "stack/store.h"

/*
 * programs: the programs of host/events.h. A gadget includes this file and lists the
 * programs in its gadget.yaml as gadget_program_disabled; the operator timeline enables
 * the requested ones. Its on_exit and on_fork maintain the selection. The gadget's own
 * events go to calls_ring.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(host_switch, bool preempted, struct task_struct *prev, struct task_struct *next)
{
	if (host_cpu) {
		host_out(prev, preempted);
		host_in(next);
	}
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(host_sys_enter, struct pt_regs *regs, long number)
{
	if (host_syscalls)
		host_call(regs, number);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(host_sys_exit, struct pt_regs *regs, long result)
{
	if (host_syscalls)
		host_returned(result);
	return 0;
}

SEC("tp_btf/rss_stat")
int BPF_PROG(host_rss_stat, struct mm_struct *mm)
{
	if (host_memory)
		host_grown(mm);
	return 0;
}

/* CPU → scratch for the stack taken by its clock sample, where interrupts are off. */
struct host_scratch {
	struct stack stack;
	struct user_fault fault;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_scratch);
} host_scratch_by_cpu SEC(".maps");

SEC("perf_event/host_sampler")
int host_sampler(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct host_scratch *scratch;
	struct host_event *e;
	__u64 process, stack, now;
	__u32 zero = 0;

	if (!host_python || !host_watches(task, &process))
		return 0;
	scratch = bpf_map_lookup_elem(&host_scratch_by_cpu, &zero);
	if (!scratch)
		return 0;
	scratch->stack.flags = 0;
	scratch->stack.native_count = 0;
	python_unwind(&scratch->stack, &scratch->fault, process);
	if (!scratch->stack.python_count)
		return 0;
	stack = stack_store(&scratch->stack, stack_hash(&scratch->stack));
	if (!stack)
		return 0;
	now = bpf_ktime_get_boot_ns();
	e = host_event(task, process, HOST_SAMPLE, now, now);
	if (!e)
		return 0;
	e->stack_id = stack;
	ring_submit(&host_ring, e, true);
	return 0;
}

RING_WAKE_PROGRAM(&calls_ring, &host_ring);

#endif
#endif
