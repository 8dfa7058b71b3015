/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CUDA_ALLOC_ROWS_H
#define GPU_GADGETS_CUDA_ALLOC_ROWS_H

#include "program/reading_pause.h"

/*
 * rows: the data sources `allocs` and `pools`: what user space reads out of the maps at
 * each interval. Fields are described in gadget.yaml.
 */

/* One row as user space sees it. */
struct alloc {
	struct gadget_process proc;
	__u64 process;
	__u64 stack_id;
	__s32 device;
	char kind[KIND_NAME_BYTES + 4]; /* so that there is no padding */
	char span_id[SPAN_TEXT_BYTES];
	__u64 row_boot_ns;
	gadget_bytes inuse_bytes;
	gadget_bytes alloc_bytes;
	gadget_bytes peak_bytes;
	__u64 inuse_objects;
	gadget_bytes freed_bytes;
	gadget_bytes implicit_bytes;
	gadget_bytes requested_bytes;
	gadget_bytes rounding_bytes;
	__u64 alloc_objects;
	__u64 freed_objects;
	__u64 implicit_objects;
#if ADDRESSES_HOLD_MEMORY
	gadget_bytes held_bytes; /* of those in use; 0 unless MEMORY_HELD */
#endif
};

#ifdef LINUX_5_10
GADGET_ITER(allocs, alloc, dump_rows, dump_unknown);
#else
GADGET_ITER(allocs, alloc, dump_rows, dump_unknown, dump_spans);
GADGET_ITER_TARGET_MAP(dump_spans, rows_by_span);
#endif
GADGET_ITER_TARGET_MAP(dump_rows, rows_by_stack);
GADGET_ITER_TARGET_MAP(dump_unknown, unknown_rows);

#ifndef LINUX_5_10
static __noinline int dump_request(struct alloc *a, struct row_key *key, __u64 span)
{
	struct span_row_key full = {};
	struct requests *request;

	if (!a || !key)
		return 0;
	full.row = *key;
	full.span = span;
	request = bpf_map_lookup_elem(&requests_by_row, &full);
	if (!request)
		return 0;
	a->requested_bytes = request->requested_bytes;
	a->rounding_bytes = request->rounding_bytes;
	return 0;
}
#endif

static __always_inline int dump_row(struct bpf_iter__bpf_map_elem *ctx, struct row_key *key,
				    struct row *row, __u64 span, __u64 born_boot_ns)
{
	struct process *p;
	struct alloc a = {};
	bool gone;

	if (!key || !row || reading_is_paused())
		return 0;
	a.row_boot_ns = born_boot_ns;
	span_text(a.span_id, span);
	a.process = key->process;
	p = bpf_map_lookup_elem(&processes_by_id, &a.process);
	if (p)
		a.proc = p->proc;
	a.stack_id = key->stack;
	kind_name(a.kind, key->kind);
	a.device = key->device;
	/* Frees first: a row read in the middle of an update is never negative. */
	a.freed_bytes = row->freed_bytes;
	a.freed_objects = row->freed_objects;
	a.implicit_bytes = row->implicit_bytes;
	a.implicit_objects = row->implicit_objects;
	barrier();
	a.alloc_bytes = row->alloc_bytes;
	a.alloc_objects = row->alloc_objects;
	a.peak_bytes = row->peak_bytes;
	a.inuse_bytes = a.alloc_bytes - a.freed_bytes - a.implicit_bytes;
	a.inuse_objects = a.alloc_objects - a.freed_objects - a.implicit_objects;
#if MEMORY_HELD
	a.held_bytes = row->held_bytes;
#endif
	gone = p && p->exit_boot_ns;
#ifdef LINUX_5_10
	gone = gone || instance_ended(key->process, key->instance);
#endif
	if (gone) {
		a.implicit_bytes += a.inuse_bytes;
		a.implicit_objects += a.inuse_objects;
		a.inuse_bytes = 0;
		a.inuse_objects = 0;
#if ADDRESSES_HOLD_MEMORY
		a.held_bytes = 0;
#endif
	}
#ifndef LINUX_5_10
	if (torch_requested && key->kind == KIND_TENSOR && !gone)
		dump_request(&a, key, span);
#endif
	if (a.alloc_objects)
		bpf_seq_write(ctx->meta->seq, &a, sizeof(a));
	return 0;
}

SEC("iter/bpf_map_elem")
int dump_rows(struct bpf_iter__bpf_map_elem *ctx)
{
	return dump_row(ctx, ctx->key, ctx->value, 0, 0);
}

SEC("iter/bpf_map_elem")
int dump_unknown(struct bpf_iter__bpf_map_elem *ctx)
{
	return dump_row(ctx, ctx->key, ctx->value, 0, 0);
}

#ifndef LINUX_5_10
SEC("iter/bpf_map_elem")
int dump_spans(struct bpf_iter__bpf_map_elem *ctx)
{
	struct span_row_key *key = ctx->key;
	struct span_row *row = ctx->value;

	return key && row ? dump_row(ctx, &key->row, &row->row, key->span, row->born_boot_ns) : 0;
}
#endif

#ifndef LINUX_5_10
/* One pool as user space sees it. */
struct pool {
	struct gadget_process proc;
	__u64 process;
	__s32 device;
	__u32 has_totals;
	gadget_bytes allocated_bytes;
	gadget_bytes reserved_bytes;
	gadget_bytes peak_allocated_bytes;
	gadget_bytes peak_reserved_bytes;
	gadget_bytes out_bytes;
	gadget_bytes back_bytes;
	gadget_bytes before_bytes;
	__u64 out_blocks;
	__u64 back_blocks;
	__u64 before_blocks;
	__u64 ooms;
	__u64 followed_blocks;
	__u64 followed_ns;
	gadget_bytes requested_bytes;
	gadget_bytes rounding_bytes;
	__u64 requested_blocks;
	__u64 odd_blocks;
};

GADGET_ITER(pools, pool, dump_pools);
GADGET_ITER_TARGET_MAP(dump_pools, torch_pools);

SEC("iter/bpf_map_elem")
int dump_pools(struct bpf_iter__bpf_map_elem *ctx)
{
	struct torch_pool_key *key = ctx->key;
	struct torch_pool *pool = ctx->value;
	struct process *process;
	struct pool row = {};

	if (!key || !pool)
		return 0;
	row.process = key->process;
	process = bpf_map_lookup_elem(&processes_by_id, &row.process);
	if (!process || process->exit_boot_ns)
		return 0; /* what it had is gone with it */
	row.proc = process->proc;
	row.device = key->device;
	row.has_totals = pool->has_totals;
	row.allocated_bytes = pool->allocated_bytes;
	row.reserved_bytes = pool->reserved_bytes;
	row.peak_allocated_bytes = pool->peak_allocated_bytes;
	row.peak_reserved_bytes = pool->peak_reserved_bytes;
	row.back_bytes = pool->back_bytes;
	row.back_blocks = pool->back_blocks;
	row.before_bytes = pool->before_bytes;
	row.before_blocks = pool->before_blocks;
	row.out_bytes = pool->out_bytes;
	row.out_blocks = pool->out_blocks;
	row.ooms = pool->ooms;
	row.followed_blocks = pool->followed_blocks;
	row.followed_ns = pool->followed_ns;
	row.requested_bytes = pool->requested_bytes;
	row.rounding_bytes = pool->rounding_bytes;
	row.requested_blocks = pool->requested_blocks;
	row.odd_blocks = pool->odd_blocks;
	bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
	return 0;
}
#endif

#endif
