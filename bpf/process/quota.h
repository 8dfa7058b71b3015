/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_QUOTA_H
#define GPU_GADGETS_PROCESS_QUOTA_H

#include "process/process.h"

/*
 * quota: how many entries a tenant may make in tables that all processes share, so that one that
 * calls from a million places does not take the room of others. A tenant is a cgroup, which a
 * container has for itself, or, where processes are in none of version 2, a mount namespace.
 *
 * Of a table's last quarter only tenants take entries that have less than a quarter of it. Of what
 * calls make and remove, such as live pointers, a tenant has at most three quarters: a counter that
 * all tenants share would go from processor to processor. Where an entry is expensive to read, a
 * tenant has less.
 *
 * A gadget with quotas defines WITH_QUOTAS.
 */
enum quota_table {
	QUOTA_STACKS,
	QUOTA_ROWS,
	QUOTA_LIVE,
	QUOTA_PROCESSES,
	QUOTA_SYMBOLS,	     /* names of Python functions */
	QUOTA_KERNELS,	     /* names of kernels */
	QUOTA_UNKNOWN,	     /* rows without a stack */
	QUOTA_TOTALS,	     /* of calls, launch/rows.h */
	QUOTA_COMMUNICATORS, /* nccl/communicators.h */
	QUOTA_OPERATIONS,
	QUOTA_PEERS,
	QUOTA_STREAMS,	/* nccl/streams.h */
	QUOTA_CONTEXTS, /* call/context.h */
	QUOTA_PRIMARIES,
	QUOTA_HANDLES, /* of physical memory, memory/vmm.h */
	QUOTA_MAPPINGS,
	QUOTA_POOLS,	 /* torch/torch.h */
	QUOTA_THREADS,	 /* call/thread.h, for Linux 5.10 */
	QUOTA_INSTANCES, /* memory/instance.h, for Linux 5.10 */
	QUOTA_SPANS,	 /* rows of spans, process/span.h */
	QUOTA_OWNERS,	 /* nccl/memory/communicators.h */
	QUOTA_SUMS,
	/* In a second: entries of what is in use have been read again before others are evicted for them. */
	QUOTA_RULES,	 /* requests for pages of unwind rules, stack/rules.h */
	QUOTA_FUNCTIONS, /* new handles of kernels, launch/names.h */
	QUOTA_FACTS,	 /* of streams, events and graphs, launch/streams.h */
	QUOTA_EVENTS,	 /* nccl/streams.h */
	QUOTA_OOMS,	 /* refused allocations, memory/oom.h */
	QUOTA_PASSES,	 /* new backward passes, call/backward.h */
	QUOTA_FAILURES,	 /* allocations that failed for another reason than memory, memory/oom.h */
	QUOTA_TABLES,	 /* at most QUOTA_SLOTS */
};
#define QUOTA_RATES 8  /* a power of two: those of a second */
#define QUOTA_SLOTS 32 /* a power of two, for the mask */

/* A gadget with programs in interrupts defines it as 0: see stack/stack.h. */
#ifndef PROCESS_MAP_FLAGS
#define PROCESS_MAP_FLAGS MAP_FLAGS_GROWING
#endif

#ifdef WITH_QUOTAS

struct quota {
	__s64 used[QUOTA_SLOTS]; /* by enum quota_table; user space corrects it */
	__u64 refused[QUOTA_SLOTS];
	/* Those of a second, from QUOTA_RULES on: 2^30 ns since boot, and how many were new in it. */
	__u32 second[QUOTA_RATES];
	__u32 count[QUOTA_RATES];
	__u32 pid; /* of the process that was refused last */
	__u32 pad;
};

/* More tenants than these share what is left. */
#define MAX_TENANTS 4096
/* The key of what all tenants have together. */
#define QUOTA_ALL 0

/*
 * Tenant → what it has. Written by programs that make entries, corrected by user space, which
 * removes entries (operators/decode/reap), and deletes tenants that have none.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, PROCESS_MAP_FLAGS);
	__uint(max_entries, MAX_TENANTS);
	__type(key, __u64);
	__type(value, struct quota);
} quotas_by_tenant SEC(".maps");

/* The root cgroup, in which every process is that is in no other of version 2. */
#define ROOT_CGROUP 1

/* The tenant that a process belongs to. */
static __always_inline __u64 tenant_of(struct task_struct *task)
{
	__u64 id = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);

	if (id <= ROOT_CGROUP)
		id = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	return id;
}

/* As tenant_of(), which needs some stack; `task` is a BTF pointer. */
static __always_inline __u64 tenant_of_known(struct task_struct *task)
{
	__u64 id = task->cgroups->dfl_cgrp->kn->id;

	if (id <= ROOT_CGROUP)
		id = task->nsproxy->mnt_ns->ns.inum;
	return id;
}

static __always_inline __u64 tenant_current(void)
{
	__u64 id = bpf_get_current_cgroup_id();

	if (id <= ROOT_CGROUP)
		id = BPF_CORE_READ(task_current(), nsproxy, mnt_ns, ns.inum);
	return id;
}

static __always_inline struct quota *quota_of(__u64 tenant)
{
	static const struct quota none;
	struct quota *q = bpf_map_lookup_elem(&quotas_by_tenant, &tenant);

	if (q)
		return q;
	bpf_map_update_elem(&quotas_by_tenant, &tenant, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&quotas_by_tenant, &tenant);
}

static __always_inline int quota_refuse(struct quota *q, __u32 table, __u32 pid)
{
	if (q) {
		__sync_fetch_and_add(&q->refused[table & (QUOTA_SLOTS - 1)], 1);
		q->pid = pid ? pid : bpf_get_current_pid_tgid() >> 32;
	}
	return 0;
}

/*
 * Takes an entry of a table of so many for a process, whose tenant is known, or for the current one
 * (0 and 0). 0: it has no room. A global function: the verifier follows it once.
 */
__noinline int quota_take(__u64 tenant, __u32 pid, __u32 table, __u32 entries)
{
	struct quota *mine = quota_of(tenant ? tenant : tenant_current());
	struct quota *all = quota_of(QUOTA_ALL);
	__u32 slot = table & (QUOTA_SLOTS - 1);
	__s64 size = entries;

	if (!all)
		return 1;
	if (all->used[slot] >= size - size / 4 && (!mine || mine->used[slot] >= size / 4))
		return quota_refuse(mine, slot, pid);
	__sync_fetch_and_add(&all->used[slot], 1);
	if (mine)
		__sync_fetch_and_add(&mine->used[slot], 1);
	return 1;
}

/* The same for the current process, whose tenant may have so many entries, whatever others have. */
__noinline int quota_take_own(__u32 table, __u32 most)
{
	struct quota *mine = quota_of(tenant_current());
	__u32 slot = table & (QUOTA_SLOTS - 1);

	if (!mine)
		return 1;
	if (mine->used[slot] >= (__s64)most)
		return quota_refuse(mine, slot, 0);
	__sync_fetch_and_add(&mine->used[slot], 1);
	return 1;
}

/* Counts something new in a table of those of a second, of which a tenant may have so many. 0: it has
 * had them. A race may count one less. */
static __always_inline int quota_count(struct quota *mine, __u32 table, __u32 most, __u32 pid)
{
	__u32 second = bpf_ktime_get_boot_ns() >> 30;
	__u32 rate = (table - QUOTA_RULES) & (QUOTA_RATES - 1);

	if (!mine)
		return 1;
	if (mine->second[rate] != second) {
		mine->second[rate] = second;
		mine->count[rate] = 0;
	}
	if (mine->count[rate] >= most)
		return quota_refuse(mine, table, pid);
	mine->count[rate]++;
	return 1;
}

/* The same for the tenant of the current process. */
__noinline int quota_count_current(__u32 table, __u32 most)
{
	return quota_count(quota_of(tenant_current()), table, most, 0);
}

/* An entry of the current process was removed from a table without a common counter. */
__noinline int quota_give(__u32 table)
{
	__u64 tenant = tenant_current();
	struct quota *mine = bpf_map_lookup_elem(&quotas_by_tenant, &tenant);

	if (mine)
		__sync_fetch_and_add(&mine->used[table & (QUOTA_SLOTS - 1)], -1);
	return 0;
}

#define QUOTA_TAKE(table, entries) quota_take(0, 0, table, entries)
#define QUOTA_TAKE_OF(task, table, entries) \
	quota_take(tenant_of(task), BPF_CORE_READ(task, tgid), table, entries)
#define QUOTA_TAKE_OWN(table, most) quota_take_own(table, most)
#define QUOTA_COUNT(table, most) quota_count_current(table, most)
#define QUOTA_COUNT_OF(task, table, most) \
	quota_count(quota_of(tenant_of_known(task)), table, most, (task)->tgid)
#define QUOTA_GIVE(table) quota_give(table)

#else

#define QUOTA_TAKE(table, entries) 1
#define QUOTA_TAKE_OF(task, table, entries) 1
#define QUOTA_TAKE_OWN(table, most) 1
#define QUOTA_COUNT(table, most) 1
#define QUOTA_COUNT_OF(task, table, most) 1
#define QUOTA_GIVE(table) ((void)0)

#endif

#endif
