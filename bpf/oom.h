/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_OOM_H
#define GPU_GADGETS_OOM_H

#include "cuda_calls.h"

/*
 * oom: an allocation that failed, with who held the memory at that moment. Sent
 * as an event because it is rare; the holders are summed up in the kernel since
 * a caching allocator gives memory back within microseconds of the failure.
 */
#define OOM_HOLDERS 5

/* CUresult, cuda.h 12.4: those that allocating calls return. */
enum cuda_error {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_MPS_CLIENT_TERMINATED = 812,
	CUDA_ERROR_EXTERNAL_DEVICE = 911,
	CUDA_ERROR_UNKNOWN = 999,
};

struct oom {
	gadget_timestamp timestamp_raw;
	struct gadget_process proc;
	__u64 process;
	__u64 stack_id;
	char span_id[SPAN_TEXT_BYTES];
	char api[32];
	enum cuda_error error_raw;
	__s32 device;
	char kind[KIND_NAME_BYTES];
	gadget_bytes requested_bytes;
	gadget_bytes inuse_bytes; /* of the process, on all devices */
	__u64 holder_stacks[OOM_HOLDERS]; /* largest first */
	__u64 holder_bytes[OOM_HOLDERS];
};

GADGET_TRACER_MAP(ooms_ring, 512 * 1024);
GADGET_TRACER(ooms, ooms_ring, oom);

/* On the program's stack: callbacks get no other memory. */
struct oom_holders {
	__u64 process;
	__u64 inuse_bytes;
	__u64 stacks[OOM_HOLDERS];
	__u64 bytes[OOM_HOLDERS];
};

#ifndef LINUX_5_10
/* Adds one row to the process's sum, and to its holders if it is large enough. */
static long oom_add(void *map, struct row_key *key, struct row *row, struct oom_holders *h)
{
	__u64 stack = key->stack, bytes = row->inuse_bytes, swap;

	if (key->process != h->process || (__s64)bytes <= 0)
		return 0;
	h->inuse_bytes += bytes;
	for (int i = 0; i < OOM_HOLDERS; i++) {
		if (bytes <= h->bytes[i])
			continue;
		swap = h->bytes[i];
		h->bytes[i] = bytes;
		bytes = swap;
		swap = h->stacks[i];
		h->stacks[i] = stack;
		stack = swap;
	}
	return 0;
}
#endif

static __noinline int oom_report(struct thread *t, __u32 id, __u32 error, __u64 stack)
{
	struct oom_holders holders = {};
	const struct cuda_api *api = cuda_api_of(id);
	struct oom *oom;

	if (!t)
		return 0;
	holders.process = t->process;
#ifndef LINUX_5_10
	bpf_for_each_map_elem(&rows_by_stack, oom_add, &holders, 0);
	bpf_for_each_map_elem(&unknown_rows, oom_add, &holders, 0);
	if (span_ids)
		bpf_for_each_map_elem(&rows_by_span, oom_add, &holders, 0);
#endif

	oom = bpf_ringbuf_reserve(&ooms_ring, sizeof(*oom), 0);
	if (!oom) {
		drop(DROP_EVENT_FULL);
		return 0;
	}
	__builtin_memset(oom, 0, sizeof(*oom));
	oom->timestamp_raw = bpf_ktime_get_boot_ns();
	gadget_process_populate(&oom->proc);
	oom->process = t->process;
	oom->stack_id = stack;
	span_text(oom->span_id, t->call.live.span);
	if (id && id < CUDA_API_COUNT)
		bpf_probe_read_kernel_str(oom->api, sizeof(oom->api), attach_points[id - 1].symbol);
	oom->error_raw = error;
	kind_name(oom->kind, api->kind);
	oom->device = t->call.live.device;
	oom->requested_bytes = call_requested(api, &t->call);
	oom->inuse_bytes = holders.inuse_bytes;
	__builtin_memcpy(oom->holder_stacks, holders.stacks, sizeof(holders.stacks));
	__builtin_memcpy(oom->holder_bytes, holders.bytes, sizeof(holders.bytes));
	bpf_ringbuf_submit(oom, 0);
	return 0;
}

#endif
