/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PY_STACK_ROWS_H
#define GPU_GADGETS_PY_STACK_ROWS_H

#include "program/reading_pause.h"

/*
 * rows: the data source samples, and the iterators that fill it from the maps.
 */

/* One row as user space sees it. */
struct python_sample {
	struct gadget_process proc;
	__u64 process;
	__u64 stack_id;
	__u32 tid; /* 0: rows are not by thread */
	__u32 pad;
	char span_id[SPAN_TEXT_BYTES];
	__u64 row_boot_ns;
	__u64 samples;
	__u64 gil_samples;
};

GADGET_ITER(samples, python_sample, dump_samples, dump_spans);
GADGET_ITER_TARGET_MAP(dump_spans, rows_by_span);
GADGET_ITER_TARGET_MAP(dump_samples, rows_by_stack);

static __always_inline int dump_row(struct bpf_iter__bpf_map_elem *ctx, struct row_key *key,
				    struct row *row, __u64 span, __u64 born_boot_ns)
{
	struct python_sample s = {};
	struct process *p;

	if (!key || !row || reading_is_paused())
		return 0;
	s.row_boot_ns = born_boot_ns;
	span_text(s.span_id, span);
	s.process = key->process;
	p = bpf_map_lookup_elem(&processes_by_id, &s.process);
	if (p)
		s.proc = p->proc;
	s.stack_id = key->stack;
	s.tid = key->tid;
	/* A row read during an update never has more of the GIL than it has samples. */
	s.gil_samples = row->gil;
	barrier();
	s.samples = row->samples;
	if (s.samples)
		bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

SEC("iter/bpf_map_elem")
int dump_samples(struct bpf_iter__bpf_map_elem *ctx)
{
	return dump_row(ctx, ctx->key, ctx->value, 0, 0);
}

SEC("iter/bpf_map_elem")
int dump_spans(struct bpf_iter__bpf_map_elem *ctx)
{
	struct span_row_key *key = ctx->key;
	struct span_row *row = ctx->value;

	return key && row ? dump_row(ctx, &key->row, &row->row, key->span, row->born_boot_ns) : 0;
}

#endif
