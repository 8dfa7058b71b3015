/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_TORCH_TORCH_H
#define GPU_GADGETS_TORCH_TORCH_H

#include "memory/live.h"
#include "process/facts.h"
#include "torch/apis.h"
#include "torch/sampling.h"

/*
 * torch: the blocks of PyTorch's caching allocator, which requests segments of at least 2
 * MiB from the driver and allocates tensors in them. They are rows of kind "tensor" and
 * are never added to the driver's rows, which contain the segments.
 *
 * PyTorch reports under the allocator's lock, so that the reports of one pool are in
 * order.
 */
#ifndef MAX_TORCH_POOLS
#define MAX_TORCH_POOLS 4096
#endif

struct torch_pool_key {
	__u64 process;
	__s32 device;
	__u32 pad;
};

/* What PyTorch itself reports about the pool of one device, and sums of its reports. */
struct torch_pool {
	__u64 allocated_bytes, reserved_bytes;		 /* at the newest report */
	__u64 peak_allocated_bytes, peak_reserved_bytes; /* of the reports */
	__u64 out_bytes, out_blocks;			 /* allocated, exact also when sampled */
	__u64 back_bytes, back_blocks;			 /* freed */
	__u64 before_bytes, before_blocks;		 /* of those, allocated before attach; only
					      * if every block is followed */
	__u64 ooms;
	__u64 has_totals;      /* 0: a version that does not report the first four */
	__u64 followed_blocks; /* with a stack, */
	__u64 followed_ns;     /* and the time that stacks took; see torch_followed() */
	/* What was requested of the blocks that were allocated, exact also when sampled; and
	 * requests that do not agree with the reports: torch/requested.h */
	__u64 requested_blocks, requested_bytes, rounding_bytes, odd_blocks;
};

/*
 * (Process, device) → its pool. Written by the probes, read by iter/bpf_map_elem.
 * A process has one for each device that it uses.
 */
struct {
	__uint(type, FACT_MAP);
	__uint(map_flags, FACT_MAP_FLAGS);
	__uint(max_entries, MAX_TORCH_POOLS);
	__type(key, struct torch_pool_key);
	__type(value, struct torch_pool);
} torch_pools SEC(".maps");

static const __u8 torch_ops[8] = {
#define X(symbol, id, op) [id] = op,
	TORCH_APIS(X)
#undef X
};

/* c10::DeviceType (torch/headeronly/core/DeviceType.h): others are not memory of these GPUs. */
#define TORCH_CUDA 1
#define TORCH_HIP 6

/* c10::Device, {int8 type, int8 index} in the low half of a register. False: no GPU. */
static __always_inline bool torch_device(struct torch_report *r, __u64 word)
{
	__u8 type = word;

	r->device = (__s8)(word >> 8);
	return type == TORCH_CUDA || type == TORCH_HIP;
}

/* False: the function is unknown, or the block is not on a GPU. */
static __always_inline bool torch_read(struct pt_regs *ctx, __u32 id, struct torch_report *r)
{
	r->op = torch_ops[id & 7];
	switch (r->op) {
	case TORCH_BLOCK:
		r->pointer = PT_REGS_PARM1(ctx);
		r->bytes = PT_REGS_PARM2(ctx);
		r->allocated_bytes = PT_REGS_PARM3(ctx);
		r->reserved_bytes = PT_REGS_PARM4(ctx);
		return torch_device(r, PT_REGS_PARM5(ctx));
	case TORCH_BLOCK_NO_TOTAL:
		r->pointer = PT_REGS_PARM1(ctx);
		r->bytes = PT_REGS_PARM2(ctx);
		return torch_device(r, PT_REGS_PARM3(ctx));
	case TORCH_OOM:
		r->bytes = PT_REGS_PARM1(ctx);
		r->allocated_bytes = PT_REGS_PARM2(ctx);
		r->reserved_bytes = PT_REGS_PARM3(ctx);
		return torch_device(r, PT_REGS_PARM4(ctx));
	default:
		return false;
	}
}

/* Whether it is that a block was freed. */
static __always_inline bool torch_is_free(const struct torch_report *r)
{
	return r->op != TORCH_OOM && r->bytes < 0;
}

/* A function of its own: its stack is not that of process_remember(). Returns 0 or -errno. */
static __noinline int torch_pool_new(struct torch_pool_key *key)
{
	struct torch_pool fresh = {};

	return key ? bpf_map_update_elem(&torch_pools, key, &fresh, BPF_NOEXIST) : -1;
}

/* In `flags` of a process that has executed no program since it was forked (linux/sched.h). */
#define PF_FORKNOEXEC 0x40

/*
 * Whether a process was forked, without a program of its own, from one that has a pool of the
 * device. It has copies of that one's tensors, which its garbage collector may delete: PyTorch
 * then reports a block of the parent, with all that the parent had allocated at the fork.
 */
static __noinline bool torch_pool_is_parents(const struct torch_report *r)
{
	struct task_struct *task = task_current();
	struct torch_pool_key key = {};

	if (!r || !(task->group_leader->flags & PF_FORKNOEXEC))
		return false;
	key.process = process_id_of(task->real_parent);
	key.device = r->device;
	return bpf_map_lookup_elem(&torch_pools, &key) != NULL;
}

/*
 * The pool of a report. NULL: there is no room, which is counted, or a block is freed that is the
 * parent's. A server that was forked before it initialised CUDA has its pool from the first block
 * on that it allocates.
 */
static __always_inline struct torch_pool *torch_pool_of(const struct torch_report *r)
{
	struct torch_pool_key key = { .process = r->process, .device = r->device };
	struct torch_pool *pool = bpf_map_lookup_elem(&torch_pools, &key);

	if (pool || (torch_is_free(r) && torch_pool_is_parents(r)))
		return pool;
	(void)FACT_ADD(r->process, QUOTA_POOLS, MAX_TORCH_POOLS, torch_pool_new(&key));
	pool = bpf_map_lookup_elem(&torch_pools, &key); /* or another CPU has made it */
	if (!pool)
		drop(DROP_TORCH_POOLS_FULL);
	return pool;
}

static __always_inline void torch_pool_totals(struct torch_pool *pool, const struct torch_report *r)
{
	if (r->op == TORCH_BLOCK_NO_TOTAL)
		return;
	pool->has_totals = 1;
	pool->allocated_bytes = r->allocated_bytes;
	pool->reserved_bytes = r->reserved_bytes;
	if (pool->peak_allocated_bytes < r->allocated_bytes)
		pool->peak_allocated_bytes = r->allocated_bytes;
	if (pool->peak_reserved_bytes < r->reserved_bytes)
		pool->peak_reserved_bytes = r->reserved_bytes;
}

static __always_inline void torch_key(struct live_key *key, const struct torch_report *r)
{
	key->process = r->process;
	key->pointer = r->pointer;
	key->space = SPACE_TENSOR;
	key->pad = 0;
}

static __always_inline __u64 torch_mean(void)
{
	__u32 zero = 0;
	__u64 *mean = bpf_map_lookup_elem(&torch_sampling, &zero);

	return mean && *mean <= SAMPLING_MOST_BYTES ? *mean : 0;
}

/* A block was freed. What it was is in `was` if the result is true. */
static __noinline bool torch_back(struct torch_report *r, struct torch_pool *pool, struct live *was)
{
	__u64 bytes;
	struct live_key key;

	if (!r || !pool || !was)
		return false;
	bytes = -r->bytes;
	__sync_fetch_and_add(&pool->back_bytes, bytes);
	__sync_fetch_and_add(&pool->back_blocks, 1);
	torch_key(&key, r);
	if (live_pop(&key, was)) {
		row_free_block(r->process, was);
		return true;
	} else if (!torch_mean()) {
		__sync_fetch_and_add(&pool->before_bytes, bytes);
		__sync_fetch_and_add(&pool->before_blocks, 1);
	}
	return false;
}

/* A block was allocated. True: it is followed, as happens with probability p. */
static __always_inline bool torch_out(const struct torch_report *r, struct torch_pool *pool,
				      __u64 p)
{
	__sync_fetch_and_add(&pool->out_bytes, r->bytes);
	__sync_fetch_and_add(&pool->out_blocks, 1);
	return p == SAMPLING_CERTAIN || bpf_get_prandom_u32() < p;
}

/* Keeps the block for its request. */
static __always_inline void torch_newest(struct thread *t, const struct torch_report *r, __u64 p)
{
	t->call.newest.pointer = r->pointer;
	t->call.newest.bytes = r->bytes;
	t->call.newest.device = r->device;
	t->call.newest.p = p;
}

/* Fills in a followed block, except for its stack and its span. */
static __always_inline void torch_live(struct live *fresh, const struct torch_report *r, __u64 p)
{
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->size_bytes = r->bytes;
	fresh->references = 1;
	if (p < SAMPLING_CERTAIN) {
		fresh->size_bytes = ((__u64)r->bytes << 32) / p;
		fresh->references = sampling_objects(p);
	}
	fresh->serial = serial_of(r->begin_boot_ns);
	fresh->kind = KIND_TENSOR;
	fresh->device = r->device;
}

/*
 * Entry of function `id` in the thread that thread_known() returned, NULL for a new one.
 * Returns the thread if a stack is to be taken; then torch_end() follows. Most reports of
 * a busy allocator concern no followed block and end here, so the work that only the
 * others need comes last.
 */
static __noinline struct thread *torch_begin(struct pt_regs *ctx, struct thread *t, __u32 id)
{
	struct torch_report r = {};
	struct torch_pool *pool;
	__u64 p = 0;

	if (!torch_read(ctx, id, &r))
		return 0;
	if (!t)
		t = thread_current(process_id_of(task_current()), true);
	if (!t) {
		drop(DROP_SCRATCH);
		return 0;
	}
	r.process = t->process;
	pool = torch_pool_of(&r);
	if (!pool)
		return 0;
	torch_pool_totals(pool, &r);
	if (r.op == TORCH_OOM) {
		__sync_fetch_and_add(&pool->ooms, 1);
	} else if (torch_is_free(&r)) {
		if (torch_back(&r, pool, &t->call.tensor) && torch_requested &&
		    t->call.tensor.handle)
			request_freed(r.process, &t->call.tensor);
		return 0;
	} else {
		p = sampling_probability(r.bytes, torch_mean());
		if (!r.bytes || !torch_out(&r, pool, p))
			p = 0;
		if (torch_requested)
			torch_newest(t, &r, p);
		if (!p)
			return 0;
	}
	r.begin_boot_ns = bpf_ktime_get_boot_ns();
	t->call.report = r;
	if (p)
		torch_live(&t->call.tensor, &r, p);
	return t;
}

/* Longer than a stack takes: the thread has waited for a page or a CPU. */
#define TORCH_WAITED_NS 250000

/* Adds the cost of following the block of `r`: user space adapts the sampling to it. */
static __always_inline void torch_followed(const struct torch_report *r)
{
	struct torch_pool_key key = { .process = r->process, .device = r->device };
	struct torch_pool *pool = bpf_map_lookup_elem(&torch_pools, &key);
	__u64 ns = bpf_ktime_get_boot_ns() - r->begin_boot_ns;

	if (!pool || ns > TORCH_WAITED_NS)
		return;
	__sync_fetch_and_add(&pool->followed_blocks, 1);
	__sync_fetch_and_add(&pool->followed_ns, ns);
}

#endif
