/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_CONTEXT_H
#define GPU_GADGETS_CALL_CONTEXT_H

#include "call/read.h"
#include "call/demand.h"
#include "call/thread.h"
#include "process/facts.h"

/*
 * context: which device a thread allocates on. The driver keeps a stack of
 * contexts per thread, and a context belongs to one device for life. A context
 * made before attach has an unknown device (-1), never device 0.
 */
#ifndef MAX_CONTEXTS
#define MAX_CONTEXTS 8192
#define MAX_PRIMARIES 4096
#endif

struct context_key {
	__u64 process;
	__u64 handle; /* a context's or a memory pool's */
};

/* CUmemLocationType: where memory is, which has an id. HIP has the same number for a device. */
#define LOCATION_DEVICE 1
#define LOCATION_HOST 2
#define LOCATION_HOST_NUMA_CURRENT 4 /* and 3: of a NUMA node */

/* No handle: what the map below has for it is the number of the process's devices. */
#define DEVICES_OF_PROCESS 0

struct primary_key {
	__u64 process;
	__s32 device;
	__u32 pad;
};

struct primary {
	__u64 handle;
	__u64 references; /* retains seen minus releases seen, and PRIMARY_BEFORE */
	__u64 exists;	  /* 1 from the first retain until its last release, or a reset */
};

/*
 * Added to the references of a context that was retained before attach: how many others hold it is not
 * known, so no release is taken for the last one, and only a reset frees its memory.
 */
#define PRIMARY_BEFORE (1ULL << 32)

/*
 * Context or pool → device. Written at create and retain, read at allocations. One that is
 * missing makes a device unknown. 8 devices × 1,000 processes a node.
 */
struct {
	__uint(type, FACT_MAP);
	__uint(map_flags, FACT_MAP_FLAGS);
	__uint(max_entries, MAX_CONTEXTS);
	__type(key, struct context_key);
	__type(value, __s32);
} device_by_context SEC(".maps");

/* (process, device) → its primary context and how often it is retained. */
struct {
	__uint(type, FACT_MAP);
	__uint(map_flags, FACT_MAP_FLAGS);
	__uint(max_entries, MAX_PRIMARIES);
	__type(key, struct primary_key);
	__type(value, struct primary);
} primary_by_device SEC(".maps");

/* Device of a context or pool; -1 when it was made before attach. */
static __always_inline __s32 context_device(__u64 process, __u64 handle)
{
	struct context_key key = { .process = process, .handle = handle };
	__s32 *device = bpf_map_lookup_elem(&device_by_context, &key);

	return device ? *device : -1;
}

static __always_inline void context_learn(__u64 process, __u64 handle, __s32 device)
{
	struct context_key key = { .process = process, .handle = handle };

	if (!bpf_map_update_elem(&device_by_context, &key, &device, BPF_EXIST))
		return;
	if (!FACT_ADD(process, QUOTA_CONTEXTS, MAX_CONTEXTS,
		      bpf_map_update_elem(&device_by_context, &key, &device, BPF_ANY)))
		drop(DROP_CONTEXTS_FULL);
}

/* The current context's handle and device; 0 and the hint where none is known. */
static __always_inline __u64 context_current(struct thread *t, __s32 *device)
{
	__u32 top = t->contexts - 1;
	struct thread_context *c;

	*device = t->device_hint;
	if (top >= THREAD_CONTEXTS)
		return 0;
	c = &t->context[top];
	if (c->device < 0)
		c->device = context_device(t->process, c->handle);
	*device = c->device;
	return c->handle;
}

/* The current context, whose device a row is about to have. An unknown one is requested. */
static __always_inline __u64 context_needed(struct thread *t, __s32 *device)
{
	__u64 handle = context_current(t, device);

	if (*device < 0)
		demand_ask(FACT_DEVICE);
	return handle;
}

/* Entry of cuCtxGetDevice. */
static __always_inline void context_ask(struct pt_regs *ctx, struct thread *t)
{
	t->device_sp = PT_REGS_SP(ctx);
	t->device_at = PT_REGS_PARM1(ctx);
}

/* Return of cuCtxGetDevice: the current context is on the device that it answers. */
static __noinline int context_answered(struct thread *t, bool may_sleep)
{
	bool is_new = false;
	__s32 device, known;
	__u32 top;

	if (!t || !call_read(&device, sizeof(device), t->device_at, may_sleep))
		return 0;
	context_current(t, &known);
	top = t->contexts - 1;
	if (known == device) {
		is_new = false;
	} else if (top < THREAD_CONTEXTS) {
		context_learn(t->process, t->context[top].handle, device);
		t->context[top].device = device;
		is_new = true;
	} else if (!t->contexts) {
		t->device_hint = device;
		is_new = true;
	}
	demand_answered(FACT_DEVICE, is_new);
	return 0;
}

/* Whether a return is that of cuCtxGetDevice, of which everything is then done. */
static __noinline bool context_answer(struct pt_regs *ctx, struct thread *t, bool may_sleep)
{
	if (!ctx || !t || !t->device_sp || PT_REGS_SP(ctx) != RETURNED_SP(t->device_sp))
		return false;
	t->device_sp = 0;
	if (!(__u32)PT_REGS_RC(ctx))
		context_answered(t, may_sleep);
	return true;
}

static __always_inline void context_push(struct thread *t, __u64 handle)
{
	__u32 n = t->contexts++;

	/* After a pop the compiler compares one register and indexes with another,
	 * and 6.1's verifier does not see that they belong together. */
	barrier_var(n);
	if (n < THREAD_CONTEXTS) {
		t->context[n].handle = handle;
		t->context[n].device = context_device(t->process, handle);
	}
}

/* The device of the one below is not known if both were pushed before attach. */
static __always_inline void context_pop(struct thread *t)
{
	if (t->contexts)
		t->contexts--;
	else
		t->device_hint = -1;
}

/* cuCtxSetCurrent: replaces the top; 0 pops it. */
static __always_inline void context_set(struct thread *t, __u64 handle)
{
	context_pop(t);
	if (handle)
		context_push(t, handle);
}

/* cuCtxDestroy: pops it where it is current. */
static __always_inline void context_destroyed(struct thread *t, __u64 handle)
{
	__u32 top = t->contexts - 1;

	if (top < THREAD_CONTEXTS && t->context[top].handle == handle)
		context_pop(t);
}

static __always_inline struct primary *primary_of(__u64 process, __s32 device)
{
	struct primary_key key = { .process = process, .device = device };

	return bpf_map_lookup_elem(&primary_by_device, &key);
}

/*
 * How long the current thread has waited for a processor since it began, in nanoseconds, and in the lower
 * 16 bits how often it has slept; 0: the kernel does not count it. Of a thread that runs it is up to date
 * (kernel/sched/stats.h).
 */
static __always_inline __u64 thread_waits(void)
{
	struct task_struct *task = task_current();

	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	return TASK_READ(task, sched_info.run_delay) << 16 | (TASK_READ(task, nvcsw) & 0xffff);
}

/*
 * The nanoseconds since `began_ns`, when thread_waits() was `before`, without what the thread has
 * waited for a processor. Of one that has slept it is all of them: since Linux 6.12 sleep counts as
 * waiting, too, if the kernel moves the thread to another processor meanwhile.
 */
static __always_inline __u64 thread_took_ns(__u64 began_ns, __u64 before)
{
	__u64 took_ns = bpf_ktime_get_boot_ns() - began_ns, now = thread_waits();

	return (now ^ before) & 0xffff ? took_ns : took_ns - ((now - before) >> 16);
}

/*
 * Whether a retain that succeeded made the primary context. One that was retained before
 * attach is not known here, but is retained within microseconds, while to make one takes
 * the driver tens of milliseconds at least: `took_ns`, of thread_took_ns(). Of two threads that
 * wait for the same context, the first to return has made it.
 */
#define PRIMARY_MAKING_NS 2000000

static __always_inline bool primary_is_new(__u64 process, __s32 device, __u64 took_ns)
{
	struct primary_key key = { .process = process, .device = device };
	struct primary fresh = { .exists = 1 };
	struct primary *p;

	if (took_ns < PRIMARY_MAKING_NS)
		return false;
	p = bpf_map_lookup_elem(&primary_by_device, &key);
	if (!p)
		return FACT_ADD(process, QUOTA_PRIMARIES, MAX_PRIMARIES,
				bpf_map_update_elem(&primary_by_device, &key, &fresh, BPF_NOEXIST));
#ifdef LINUX_5_10
	if (p->exists)
		return false;
	p->exists = 1;
	return true;
#else
	return !__sync_lock_test_and_set(&p->exists, 1);
#endif
}

/* Whether a context may have been retained before attach by others. */
static __always_inline bool primary_is_from_before(const struct primary *p)
{
	return !p || p->references >= PRIMARY_BEFORE;
}

/* A release succeeded. False: it is not known whether it was the last one. */
static __always_inline bool primary_released(struct primary *p)
{
	if (!p || p->references == PRIMARY_BEFORE) {
		if (p)
			p->exists = 0; /* perhaps: how long the next retain takes shows it */
		return false;
	}
	if (p->references)
		__sync_fetch_and_add(&p->references, -1);
	if (!p->references)
		p->exists = 0;
	return true;
}

static __always_inline void primary_retain(__u64 process, __u64 handle, __s32 device)
{
	struct primary_key key = { .process = process, .device = device };
	/* One that exists and is not known was retained before attach, too. */
	struct primary fresh = { .handle = handle, .references = PRIMARY_BEFORE + 1, .exists = 1 };
	struct primary *p;

	context_learn(process, handle, device);
	p = bpf_map_lookup_elem(&primary_by_device, &key);
	if (p) {
		p->handle = handle;
		p->exists = 1;
		__sync_fetch_and_add(&p->references, 1);
	} else if (!FACT_ADD(process, QUOTA_PRIMARIES, MAX_PRIMARIES,
			     bpf_map_update_elem(&primary_by_device, &key, &fresh, BPF_ANY))) {
		drop(DROP_CONTEXTS_FULL);
	}
}

#endif
