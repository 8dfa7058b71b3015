/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_OOM_H
#define GPU_GADGETS_MEMORY_OOM_H

#include "memory/calls.h"
#include "call/error.h"
#ifndef LINUX_5_10
#include "torch/torch.h"
#endif

/*
 * oom: an allocation that failed, with who held the memory at that moment: there was none left, or it
 * has another reason, as where a program finds out what the GPU supports. Sent
 * as an event because it is rare; the holders are summed up in the kernel since
 * a caching allocator gives memory back within microseconds of the failure.
 */
#define OOM_HOLDERS 10

struct oom {
	gadget_timestamp timestamp_raw;
	struct gadget_process proc;
	__u64 process;
	__u64 stack_id;
	char span_id[SPAN_TEXT_BYTES];
	char api[32];
	char refused_by[REFUSER_BYTES];
	enum driver_error error_raw;
	__s32 device;
	char kind[KIND_NAME_BYTES];
	gadget_bytes requested_bytes;
	gadget_bytes inuse_bytes; /* of the process, on the device, of the same enum oom_memory */
	gadget_bytes pool_allocated_bytes; /* PyTorch's own totals of the device */
	gadget_bytes pool_reserved_bytes;
	__u64 holder_stacks[OOM_HOLDERS]; /* largest first */
	__u64 holder_bytes[OOM_HOLDERS];
};

/* Events of a tenant in a second: half of what the ring has room for. Tests set it. */
const volatile __u32 ooms_own = 512;
/* Of those for another reason than memory: after a kernel's error all that a program tries fails. */
const volatile __u32 failures_own = 256;

GADGET_TRACER_MAP(ooms_ring, 512 * 1024);
GADGET_TRACER(ooms, ooms_ring, oom);

/* What has no room for others: each has its own holders. */
enum oom_memory {
	OOM_DEVICE,
	OOM_HOST,    /* pinned */
	OOM_TENSORS, /* of PyTorch's pool, in that of the device */
};

static __always_inline enum oom_memory oom_memory_of(__u64 kind)
{
	return kind == KIND_TENSOR ? OOM_TENSORS : kind == KIND_HOST ? OOM_HOST : OOM_DEVICE;
}

/* On the program's stack: callbacks get no other memory. */
struct oom_holders {
	__u64 process;
	__u32 memory; /* enum oom_memory */
	__s32 device; /* whose memory it is; -1: all devices, or not known */
	__u64 inuse_bytes;
	__u64 stacks[OOM_HOLDERS];
	__u64 bytes[OOM_HOLDERS];
};

/* What is on another device takes no room on this one; what may be on it does. */
static __always_inline bool oom_is_elsewhere(__s32 row, __s32 device)
{
	return row >= 0 && device >= 0 && row != device;
}

#ifndef LINUX_5_10
/* Adds one row to the process's sum, and to its holders if it is large enough. */
static long oom_add(void *map, struct row_key *key, struct row *row, struct oom_holders *h)
{
	__u64 stack = key->stack, bytes = row->inuse_bytes, less, swap;

	if (key->process != h->process || oom_memory_of(key->kind) != h->memory ||
	    (__s64)bytes <= 0 || oom_is_elsewhere(key->device, h->device))
		return 0;
	h->inuse_bytes += bytes;
	/* Without a branch: the verifier would follow both ways of each. */
	for (int i = 0; i < OOM_HOLDERS; i++) {
		less = (__s64)(h->bytes[i] - bytes) >> 63; /* all ones, or none */
		barrier_var(less);
		swap = (h->bytes[i] ^ bytes) & less;
		h->bytes[i] ^= swap;
		bytes ^= swap;
		swap = (h->stacks[i] ^ stack) & less;
		h->stacks[i] ^= swap;
		stack ^= swap;
	}
	return 0;
}
#endif

/*
 * Whether an error is that there is no memory left. HAMi before 2.9 gives -1 where its limit is reached; drivers have no
 * negative ones.
 */
static __always_inline bool is_out_of_memory(__u32 error)
{
#ifdef ERROR_RUNTIME_MEMORY
	if (error == ERROR_RUNTIME_MEMORY)
		return true;
#endif
	return error == ERROR_OUT_OF_MEMORY || (__s32)error < 0;
}

/*
 * Reserves an event and fills in the kind of memory, the device, and all that does not depend on
 * the call. NULL: no room.
 */
static __always_inline struct oom *oom_begin(struct thread *t, __u64 stack, __u32 kind,
					     __s32 device, __u32 error)
{
	struct oom_holders holders = {};
	bool is_oom = is_out_of_memory(error);
	struct oom *oom;

	if (!QUOTA_COUNT(is_oom ? QUOTA_OOMS : QUOTA_FAILURES, is_oom ? ooms_own : failures_own)) {
		drop(DROP_EVENT_FULL);
		return NULL;
	}
	holders.process = t->process;
	holders.memory = oom_memory_of(kind);
	holders.device =
		holders.memory == OOM_HOST ? -1 : device; /* the host's is that of all devices */
#ifndef LINUX_5_10
	bpf_for_each_map_elem(&rows_by_stack, oom_add, &holders, 0);
	bpf_for_each_map_elem(&unknown_rows, oom_add, &holders, 0);
	if (span_ids)
		bpf_for_each_map_elem(&rows_by_span, oom_add, &holders, 0);
#endif

	oom = bpf_ringbuf_reserve(&ooms_ring, sizeof(*oom), 0);
	if (!oom) {
		drop(DROP_EVENT_FULL);
		return NULL;
	}
	__builtin_memset(oom, 0, sizeof(*oom));
	oom->timestamp_raw = bpf_ktime_get_boot_ns();
	gadget_process_populate(&oom->proc);
	oom->process = t->process;
	oom->error_raw = error;
	oom->stack_id = stack;
	oom->device = device;
	kind_name(oom->kind, kind);
	oom->inuse_bytes = holders.inuse_bytes;
	__builtin_memcpy(oom->holder_stacks, holders.stacks, sizeof(holders.stacks));
	__builtin_memcpy(oom->holder_bytes, holders.bytes, sizeof(holders.bytes));
	return oom;
}

static __noinline int oom_report(struct thread *t, __u32 id, __u32 error, __u64 stack)
{
	const struct memory_api *api = memory_api_of(id);
	struct oom *oom;
	__u32 refuser;

	if (!t)
		return 0;
	refuser = interposed_refuser(t);
	oom = oom_begin(t, stack, t->call.live.kind, t->call.live.device, error);
	if (!oom)
		return 0;
	span_text(oom->span_id, t->call.live.span);
	if (id && id < MEMORY_API_COUNT)
		bpf_probe_read_kernel_str(oom->api, sizeof(oom->api), attach_points[id - 1].symbol);
	refuser_name(oom->refused_by, refuser);
	oom->requested_bytes = call_requested(api, &t->call);
	bpf_ringbuf_submit(oom, 0);
	return 0;
}

#ifndef LINUX_5_10
/* PyTorch's allocator is about to raise OutOfMemoryError. */
static __noinline int oom_report_torch(struct thread *t, __u64 stack)
{
	const struct torch_report *r;
	struct oom *oom;

	if (!t)
		return 0;
	r = &t->call.report;
	oom = oom_begin(t, stack, KIND_TENSOR, r->device, ERROR_OUT_OF_MEMORY);
	if (!oom)
		return 0;
	__builtin_memcpy(oom->api, "torch", 6);
	__builtin_memcpy(oom->refused_by, "torch", 6);
	oom->requested_bytes = r->bytes;
	oom->pool_allocated_bytes = r->allocated_bytes;
	oom->pool_reserved_bytes = r->reserved_bytes;
	span_text(oom->span_id, t->call.tensor.span);
	bpf_ringbuf_submit(oom, 0);
	return 0;
}

/* Its stack was taken: adds the block of torch_begin() to its row, or reports an OOM. */
static __noinline int torch_end(struct thread *t, __u64 stack)
{
	struct live_key key;

	if (!t)
		return 0;
	if (t->call.report.op == TORCH_OOM)
		return oom_report_torch(t, stack);
	t->call.tensor.stack = stack;
	torch_key(&key, &t->call.report);
	live_insert(&key, &t->call.tensor);
	torch_followed(&t->call.report);
	return 0;
}
#endif

#endif
