/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_TORCH_REQUESTED_H
#define GPU_GADGETS_TORCH_REQUESTED_H

#include "call/usdt.h"
#include "torch/torch.h"

/*
 * requested: how many bytes of a block were requested, which the pool has rounded up. The
 * report of a block (torch/torch.h) has its size only. PyTorch's static probe
 *
 *   pytorch:malloc(void *pointer, int8 device, size_t requested, int64 stream)
 *
 * has the request. PyTorch 2.2 and newer have it on x86-64, in libc10_cuda or libc10_hip; it
 * fires on the same thread, just after the report of the block, and only while its semaphore is
 * held. Blocks of raw_alloc() have none. The probe is a second witness, too: a request without
 * the report of its block, or one that does not fit into the block, is counted as odd.
 *
 * pytorch:free is not probed: reports say the same, and include blocks of raw_alloc().
 *
 * No stack is taken here: the block knows its row. If torch_requested is false, nothing is
 * attached.
 */
/* A request for the newest block of the thread. */
static __noinline int requested_add(struct thread *t, struct torch_pool *pool, __u64 bytes)
{
	struct span_row_key row_key;
	struct requests *request, fresh = {};
	struct live_key key = {};
	struct live *live;
	__u64 p;

	if (!t || !pool)
		return 0;
	__sync_fetch_and_add(&pool->requested_blocks, 1);
	__sync_fetch_and_add(&pool->requested_bytes, bytes);
	__sync_fetch_and_add(&pool->rounding_bytes, t->call.newest.bytes - bytes);
	p = t->call.newest.p;
	if (!p)
		return 0; /* not followed: sampling passed it over */
	key.process = t->process;
	key.pointer = t->call.newest.pointer;
	key.space = SPACE_TENSOR;
	live = bpf_map_lookup_elem(&live_by_pointer, &key);
	if (!live || live->handle)
		return 0; /* the table was full, which is a drop already */
	row_key_of(&row_key, t->process, live);
	request = bpf_map_lookup_elem(&requests_by_row, &row_key);
	if (!request) {
		bpf_map_update_elem(&requests_by_row, &row_key, &fresh, BPF_NOEXIST);
		request = bpf_map_lookup_elem(&requests_by_row, &row_key);
		if (!request)
			return 0;
	}
	if (p < SAMPLING_CERTAIN)
		bytes = (bytes << 32) / p; /* as torch_live() does with the block */
	if (!bytes || bytes > live->size_bytes)
		return 0;
	live->handle = bytes;
	__sync_fetch_and_add(&request->requested_bytes, bytes);
	__sync_fetch_and_add(&request->rounding_bytes, live->size_bytes - bytes);
	return 0;
}

static __noinline int requested_seen(struct pt_regs *ctx)
{
	__u64 pointer = 0, device = 0, bytes = 0;
	struct thread *t = thread_known();
	struct torch_pool_key key = {};
	struct torch_pool *pool;
	struct usdt_site *site;

	/* A thread without a report, or a pool without one: reports are not attached yet, or
	 * the pool is not used (PYTORCH_NO_CUDA_MEMORY_CACHING). */
	if (!t || discard_thread(t) || budget_counts_only())
		return 0;
	site = usdt_site_of(ctx);
	if (!site || !usdt_read(ctx, site, 0, &pointer) || !usdt_read(ctx, site, 1, &device) ||
	    !usdt_read(ctx, site, 2, &bytes)) {
		drop(DROP_READ_ARGUMENT);
		return 0;
	}
	if (!pointer || !bytes)
		return 0; /* PyTorch 2.1 fires it before it has a block */
	key.process = t->process;
	key.device = (__s8)device;
	pool = bpf_map_lookup_elem(&torch_pools, &key);
	if (!pool)
		return 0;
	if (pointer == t->call.newest.pointer && key.device == t->call.newest.device &&
	    bytes <= t->call.newest.bytes)
		requested_add(t, pool, bytes);
	else
		__sync_fetch_and_add(&pool->odd_blocks, 1);
	t->call.newest.pointer = 0;
	return 0;
}

SEC("uprobe/gadget_program_disabled")
int torch_malloc(struct pt_regs *ctx)
{
	kernel_stack_only();
	if (!torch_requested || (budget_ppm && discard()))
		return 0;
	budget_begin(true);
	requested_seen(ctx);
	budget_end(BUDGET_REPORTS, false);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__array(values, int(struct pt_regs *));
} attach_usdt SEC(".maps") = { .values = { [0] = &torch_malloc } };

const struct attach_point requested_points[] ATTACH_POINTS = {
	{ TORCH_GPU_LIBRARY, "pytorch:malloc", 0, ATTACH_USDT },
};

#endif
