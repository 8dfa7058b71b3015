/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HOST_MEMORY_H
#define GPU_GADGETS_HOST_MEMORY_H

#include "host/events.h"

/*
 * memory: how the resident memory of a process grows, from the kernel's own
 * accounting: page faults bring in what was mapped, and pages next to it.
 *
 * The kernel counts in batches for each CPU, of max(32, 2 × CPUs) pages
 * (lib/percpu_counter.c). A value read here is off by at most one batch per CPU that the
 * process has run on.
 */
#define HOST_MEMORY_STEP (1 << 20)   /* bytes after which a change is reported at once */
#define HOST_MEMORY_NS 10000000ULL   /* interval after which a smaller change is reported */

/* As the constants of host/events.h. */
const volatile __u8 host_page_shift = 12; /* of the kernel's pages */
const volatile __u8 gadget_var_host_page_shift = 12;

struct host_resident {
	__u64 reported_ns; /* boot clock */
	__u64 file_bytes, anon_bytes;
};

/* Process → what was last reported for it. LRU; user space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct host_resident);
} host_resident_by_process SEC(".maps");

/* Before 6.2 (f1a7941243c1, "mm: convert mm's rss stats into percpu_counter"). */
struct mm_rss_stat___before_6_2 {
	__s64 count; /* declared as one struct, but an array of them */
} __attribute__((preserve_access_index));
struct mm_struct___before_6_2 {
	struct mm_rss_stat___before_6_2 rss_stat;
} __attribute__((preserve_access_index));
struct percpu_counter___6_2 {
	__s64 count;
} __attribute__((preserve_access_index));
struct mm_struct___6_2 {
	struct percpu_counter___6_2 rss_stat[4];
} __attribute__((preserve_access_index));

enum host_member { HOST_FILE_PAGES = 0, HOST_ANON_PAGES = 1, HOST_SHMEM_PAGES = 3 };

/* A macro, because with a variable index the compiler would use the size of this
 * percpu_counter and not the kernel's. */
#define HOST_BYTES(mm, member)                                                         \
	({                                                                             \
		__s64 pages_ = 0;                                                      \
		if (bpf_core_type_exists(struct mm_rss_stat___before_6_2)) {           \
			struct mm_struct___before_6_2 *old = (void *)(mm);             \
			bpf_probe_read_kernel(&pages_, sizeof(pages_),                 \
					      (__s64 *)&old->rss_stat + (member));     \
		} else {                                                               \
			struct mm_struct___6_2 *now_ = (void *)(mm);                   \
			pages_ = BPF_CORE_READ(now_, rss_stat[member].count);          \
		}                                                                      \
		pages_ > 0 ? (__u64)pages_ << host_page_shift : 0;                     \
	})

static __always_inline __u64 host_distance(__u64 a, __u64 b)
{
	return a > b ? a - b : b - a;
}

static __always_inline void host_grown(struct mm_struct *mm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct host_resident now = {}, *last;
	struct host_event *e;
	__u64 process, start;

	if (task->mm != mm || !host_watches(task, &process))
		return;
	now.reported_ns = bpf_ktime_get_boot_ns();
	now.file_bytes = HOST_BYTES(mm, HOST_FILE_PAGES) + HOST_BYTES(mm, HOST_SHMEM_PAGES);
	now.anon_bytes = HOST_BYTES(mm, HOST_ANON_PAGES);
	last = bpf_map_lookup_elem(&host_resident_by_process, &process);
	if (last && now.reported_ns - last->reported_ns < HOST_MEMORY_NS &&
	    host_distance(now.file_bytes, last->file_bytes) < HOST_MEMORY_STEP &&
	    host_distance(now.anon_bytes, last->anon_bytes) < HOST_MEMORY_STEP)
		return;
	/* The growth happened within the last interval, even if the last report is older. */
	start = last && now.reported_ns - last->reported_ns < HOST_MEMORY_NS ?
			last->reported_ns :
			now.reported_ns - HOST_MEMORY_NS;
	bpf_map_update_elem(&host_resident_by_process, &process, &now, BPF_ANY);
	e = host_event(task, process, HOST_MEMORY, start, now.reported_ns);
	if (!e)
		return;
	e->file_bytes = now.file_bytes;
	e->anon_bytes = now.anon_bytes;
	ring_submit(&host_ring, e, true);
}

#endif
