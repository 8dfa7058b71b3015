/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_LIFE_H
#define GPU_GADGETS_CALL_LIFE_H

#include "call/probes.h"
#include "process/rows.h"
#include "python/python.h"
#include "call/thread.h"
#ifdef WITH_SPANS
#include "process/span.h"
#else
#define span_inherit(parent, child)
#define span_gone(tgid)
#endif

/*
 * life: the programs that follow the life of processes for a gadget that follows
 * calls (call/probes.h). A gadget whose rows have spans defines WITH_SPANS. cuda_alloc has its
 * own.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread *t = thread_of(task);

	if (t && t->process == process_id_of(task) && t->call.sp)
		drop(DROP_DIED_IN_CALL);
	thread_gone(task);
	if (process_exited(task)) {
		selection_gone(task->tgid);
		span_gone(task->tgid);
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	process_replaced(task);
	span_gone(task->tgid);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	selection_inherit(parent->tgid, child->tgid);
	span_inherit(parent->tgid, child->tgid);
	if (attach_mode == ATTACH_STOCK)
		python_forks(parent, child);
	device_thread_started(child);
	return 0;
}

#endif
