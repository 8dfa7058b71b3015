/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_BUDGET_H
#define GPU_GADGETS_CALL_BUDGET_H

#include "process/process.h"
#include "program/storage.h"

/*
 * budget: what the probes cost each thread that hits them: the traps, which take what
 * the operator budget has measured before, and the time that our programs run. User
 * space compares it with the thread's CPU time and decides what has to become cheaper.
 *
 * Include it before call/probes.h, which has the hooks. Not for kernels before 6.0: they
 * have no task storage.
 */

/* Parts per million of a traced thread's CPU time; 0: no budget, and none of this code. */
const volatile __u32 budget_ppm = 0;
const volatile __u32 gadget_var_budget_ppm = 0;

#define BUDGET_APIS 256
#define BUDGET_RETURNS 0   /* in the place of an api: the returns of all */
#define BUDGET_REPORTS 255 /* what PyTorch's allocator reports */

#ifdef LINUX_5_10
static __always_inline __u64 budget_clock(void)
{
	return 0;
}

static __always_inline void budget_entered(__u32 api, __u64 begin)
{
}

static __always_inline void budget_begin(bool is_entry)
{
}

static __always_inline void budget_end(__u32 api, bool is_return)
{
}

static __always_inline bool budget_counts_only(void)
{
	return false;
}
#else

/* One trap into the kernel and back, without the program. */
struct budget_traps {
	__u64 entry_ns, return_ns;
	__u64 doubt_1024; /* see launch/windows_error.h */
	__u64 count_only; /* reports of PyTorch's allocator are counted only */
};

/* [0]. Written by user space, first before anything is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct budget_traps);
} budget_traps SEC(".maps");

struct budget_cost {
	__u64 hits, ns;
};

/* [api] → what its entries have cost. Read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUDGET_APIS);
	__type(key, __u32);
	__type(value, struct budget_cost);
} budget_by_api SEC(".maps");

/* What a thread has paid since it was last published. */
struct budget_thread {
	__u64 begin_boot_ns; /* of the return's program that runs */
	__u64 cost_ns;
	__u64 published_boot_ns;
};

/* Thread → that. Written and read by its own probes. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct budget_thread);
} budget_by_task SEC(".maps");

/* Since the thread's first call. */
struct budget_sum {
	__u64 process;
	__u64 cost_ns, cpu_ns; /* cpu: of the thread since it began */
};

#define BUDGET_THREADS 2048
/* A window of 5 ms is read when it begins and ends. */
#define BUDGET_PUBLISH_NS 50000ULL
/* Longer than a program runs: the thread waited meanwhile, for a page or the processor. */
#define BUDGET_MOST_NS 100000ULL

/* (tgid, tid) → what user space reads. LRU: threads that have ended age out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BUDGET_THREADS);
	__type(key, __u64);
	__type(value, struct budget_sum);
} budget_by_thread SEC(".maps");

static __always_inline __u64 budget_clock(void)
{
	return budget_ppm ? bpf_ktime_get_boot_ns() : 0;
}

static __noinline int budget_publish(struct budget_thread *t)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct task_struct *task = task_current();
	struct budget_sum *sum, fresh = {};

	if (!t)
		return 0;
	sum = bpf_map_lookup_elem(&budget_by_thread, &thread);
	if (!sum) {
		fresh.process = process_id_of(task);
		bpf_map_update_elem(&budget_by_thread, &thread, &fresh, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&budget_by_thread, &thread);
		if (!sum)
			return 0;
	}
	sum->cost_ns += t->cost_ns;
	sum->cpu_ns = task->se.sum_exec_runtime;
	t->cost_ns = 0;
	return 0;
}

/* A program that began at `begin` ends: for the thread, and for all entries of `api`. A
 * function of its own, so that what it needs is not on the stack below the unwinder. */
static __noinline int budget_charge(struct budget_thread *t, __u32 api, __u64 begin,
				     bool is_return)
{
	__u64 now = bpf_ktime_get_boot_ns(), ns = now - begin;
	struct budget_traps *traps;
	struct budget_cost *cost;
	__u32 zero = 0;

	traps = bpf_map_lookup_elem(&budget_traps, &zero);
	cost = bpf_map_lookup_elem(&budget_by_api, &api);
	if (!t || !traps || !cost)
		return 0;
	if (ns > BUDGET_MOST_NS)
		ns = BUDGET_MOST_NS;
	ns += is_return ? traps->return_ns : traps->entry_ns;
	/* Of this CPU; a program that may sleep can be preempted here, and one sum lost. */
	cost->hits++;
	cost->ns += ns;
	t->cost_ns += ns;
	if (now - t->published_boot_ns < BUDGET_PUBLISH_NS)
		return 0;
	t->published_boot_ns = now;
	return budget_publish(t);
}

/* An entry of `api` has been handled, which began at `begin`. */
static __always_inline void budget_entered(__u32 api, __u64 begin)
{
	struct budget_thread *t;

	if (!budget_ppm)
		return;
	t = storage_get(&budget_by_task, task_current(), BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (t)
		budget_charge(t, (__u8)api, begin, false); /* above it: of which library */
}

/* A program with a stack to take begins, and has ended. When it began is kept here, for the
 * stack of the program between them is the unwinder's. */
static __noinline int budget_note(bool is_entry)
{
	struct budget_thread *t;

	t = storage_get(&budget_by_task, task_current(), is_entry ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (t)
		t->begin_boot_ns = bpf_ktime_get_boot_ns();
	return 0;
}

static __noinline int budget_noted(__u32 api, bool is_return)
{
	struct budget_thread *t;

	t = bpf_task_storage_get(&budget_by_task, task_current(), 0, 0);
	return t ? budget_charge(t, api, t->begin_boot_ns, is_return) : 0;
}

static __always_inline void budget_begin(bool is_entry)
{
	if (budget_ppm)
		budget_note(is_entry);
}

static __always_inline void budget_end(__u32 api, bool is_return)
{
	if (budget_ppm)
		budget_noted(api, is_return);
}

/* Whether user space wants to know what following tensors would cost, and no tensors. */
static __always_inline bool budget_counts_only(void)
{
	struct budget_traps *traps;
	__u32 zero = 0;

	if (!budget_ppm)
		return false;
	traps = bpf_map_lookup_elem(&budget_traps, &zero);
	return traps && traps->count_only;
}
#endif

#endif
