/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CUDA_ALLOC_BUFFERS_H
#define GPU_GADGETS_CUDA_ALLOC_BUFFERS_H

/*
 * buffers: the data source of what NCCL holds for each communicator. Fields are described in
 * gadget.yaml.
 */

struct buffer {
	struct gadget_process proc;
	__u64 process;
	__u64 number;
	__u64 handle;
	__u64 identity;
	__u64 stack_id;
	char name[NCCL_NAME_BYTES];
	char state[12];
	__s32 rank;
	__s32 size;
	__s32 device;
	char kind[KIND_NAME_BYTES];
	char phase[16];
	gadget_bytes inuse_bytes;
	gadget_bytes alloc_bytes;
	gadget_bytes peak_bytes;
	__u64 inuse_objects;
	gadget_bytes freed_bytes;
	gadget_bytes implicit_bytes;
	__u64 alloc_objects;
	__u64 freed_objects;
	__u64 implicit_objects;
};

GADGET_ITER(buffers, buffer, dump_buffers);
GADGET_ITER_TARGET_MAP(dump_buffers, sums_by_communicator);

static const char owner_phases[8][16] = OWNER_PHASES;
static const char owner_states[4][12] = OWNER_STATES;

/* The fields of the communicator itself. */
static __always_inline void buffer_owner(struct buffer *b, const struct owner *o)
{
	b->handle = o->handle;
	b->identity = o->identity;
	b->stack_id = o->stack;
	b->rank = o->rank;
	b->size = o->size;
	__builtin_memcpy(b->name, o->name, sizeof(b->name));
	bpf_probe_read_kernel(b->state, sizeof(b->state), owner_states[o->state & 3]);
}

SEC("iter/bpf_map_elem")
int dump_buffers(struct bpf_iter__bpf_map_elem *ctx)
{
	struct owner_sum_key *key = ctx->key;
	struct owner_sum *sum = ctx->value;
	struct owner_key owner_key = {};
	struct owner *owner;
	struct buffer b = {};
	struct process *p;

	if (!key || !sum)
		return 0;
	b.process = owner_key.process = key->process;
	b.number = owner_key.number = key->number;
	p = bpf_map_lookup_elem(&processes_by_id, &b.process);
	if (p)
		b.proc = p->proc;
	b.rank = b.size = -1;
	owner = bpf_map_lookup_elem(&owners_by_number, &owner_key);
	if (owner)
		buffer_owner(&b, owner);
	b.device = key->device;
	kind_name(b.kind, key->kind);
	bpf_probe_read_kernel(b.phase, sizeof(b.phase), owner_phases[key->phase & 7]);
	/* As in rows.h: frees first. */
	b.freed_bytes = sum->freed_bytes;
	b.freed_objects = sum->freed_objects;
	b.implicit_bytes = sum->implicit_bytes;
	b.implicit_objects = sum->implicit_objects;
	barrier();
	b.alloc_bytes = sum->alloc_bytes;
	b.alloc_objects = sum->alloc_objects;
	b.peak_bytes = sum->peak_bytes;
	b.inuse_bytes = b.alloc_bytes - b.freed_bytes - b.implicit_bytes;
	b.inuse_objects = b.alloc_objects - b.freed_objects - b.implicit_objects;
	if (p && p->exit_boot_ns) {
		b.implicit_bytes += b.inuse_bytes;
		b.implicit_objects += b.inuse_objects;
		b.inuse_bytes = b.inuse_objects = 0;
	}
	bpf_seq_write(ctx->meta->seq, &b, sizeof(b));
	return 0;
}

#endif
