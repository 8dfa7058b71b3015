/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_ARGUMENTS_H
#define GPU_GADGETS_HIP_ARGUMENTS_H

/*
 * arguments: where calls of HIP have what launch/calls.h reads of those of the CUDA driver
 * (launch/cuda/arguments.h), and the names of kernels that a program registers. x86-64 only,
 * as HIP.
 */

/* Arguments on the stack that are read: hipMemset3D has seven. */
#define MORE_ARGUMENTS 8

static __always_inline bool has_more_arguments(const struct call_api *api)
{
	return api->flags & CALL_ON_STACK;
}

/* By value, a dim3 is in two registers: x and y, z. */
static __always_inline void facts_launch(struct call_facts *f, const struct inflight *call,
					 __u8 detail)
{
	f->shape.launches = 1;
	if (detail == LAUNCH_HOST) {
		f->shape.grid[0] = call->argument[1];
		f->shape.grid[1] = call->argument[1] >> 32;
		f->shape.grid[2] = call->argument[2];
		f->shape.block[0] = call->argument[3];
		f->shape.block[1] = call->argument[3] >> 32;
		f->shape.block[2] = call->argument[4];
		f->shape.shared_bytes = call->argument[6];
		return;
	}
	f->shape.shared_bytes = call->argument[7];
	for (int i = 0; i < 3; i++) {
		f->shape.grid[i] = call->argument[1 + i];
		f->shape.block[i] = call->argument[4 + i];
		/* The last block of a dimension may be smaller. */
		if (detail == LAUNCH_ITEMS && f->shape.block[i])
			f->shape.grid[i] = f->shape.grid[i] / f->shape.block[i] +
					   (f->shape.grid[i] % f->shape.block[i] != 0);
	}
}

/* hipFunctionLaunchParams is CUDA's; in hipLaunchParams the arguments come before the shared
 * memory and the stream. */
static __always_inline void facts_launch_multi(struct call_facts *f, __u64 first, __u32 count,
					       __u8 detail, bool may_sleep)
{
	__u64 words[7];

	if (!call_read(words, sizeof(words), first, may_sleep))
		return;
	f->function = words[0];
	__builtin_memcpy(&f->shape, &words[1], 24);
	f->shape.shared_bytes = detail == LAUNCH_HOST ? words[5] : words[4];
	f->shape.launches = count;
	f->stream = detail == LAUNCH_HOST ? words[6] : words[5];
}

/* hipMemoryType of HIP 6: host 1, device 2, array 10; others are either's. */
static __always_inline __u32 copy_direction(__u32 from, __u32 to)
{
	if ((from != 1 && from != 2 && from != 10) || (to != 1 && to != 2 && to != 10))
		return COPY_ANY;
	if (from == 1)
		return to == 1 ? COPY_HTOH : COPY_HTOD;
	return to == 1 ? COPY_DTOH : COPY_DTOD;
}

/* hipMemcpyKind */
static __always_inline __u32 kind_direction(__u32 kind)
{
	if (kind == 0)
		return COPY_HTOH;
	if (kind == 1)
		return COPY_HTOD;
	if (kind == 2)
		return COPY_DTOH;
	return kind == 3 || kind == 1024 ? COPY_DTOD : COPY_ANY; /* 1024: without compute units */
}

static __always_inline __u64 call_extent(const struct inflight *call, const struct call_api *api,
					 __u64 bytes)
{
	if (api->flags & CALL_2D)
		bytes *= call_argument(call, api->a + 1);
	if (api->flags & CALL_3D)
		bytes *= call_argument(call, api->a + 2);
	return bytes;
}

static __always_inline void facts_copy(struct call_facts *f, const struct inflight *call,
				       const struct call_api *api, __u64 a)
{
	f->direction = api->detail & 8 ? kind_direction(call_argument(call, api->detail >> 4))
				       : api->detail;
	f->bytes = call_extent(call, api, a);
}

static __always_inline void facts_set(struct call_facts *f, const struct inflight *call,
				      const struct call_api *api, __u64 a)
{
	f->bytes = call_extent(call, api, a) * api->detail;
}

/*
 * HIP_MEMCPY3D: types at 32 and 112, width, height and depth at 160. hipMemcpy3DParms: the
 * same at 128, and the kind after them; where an array takes part, the width is in elements
 * of it, whose size is not known here: 1 byte.
 */
static __always_inline void facts_copy_3d(struct call_facts *f, __u64 at, __u32 detail,
					  bool may_sleep)
{
	__u64 extent[3];
	__u32 from, to;

	if (!call_read(extent, sizeof(extent), at + (detail == COPY_PARMS ? 128 : 160),
		       may_sleep) ||
	    !call_read(&from, 4, at + (detail == COPY_PARMS ? 152 : 32), may_sleep) ||
	    !call_read(&to, 4, at + (detail == COPY_PARMS ? 152 : 112), may_sleep))
		return;
	f->direction = detail == COPY_PARMS ? kind_direction(from) : copy_direction(from, to);
	f->bytes = extent[0] * extent[1] * extent[2];
}

/*
 * (Process, its handle of a kernel) → address of the kernel's name. Written where the program
 * registers it, which is before it can launch it; read at its first launch, so that only the
 * names of kernels that are launched are stored. LRU: an evicted one, as those registered
 * before attach, is named by the program's symbol at the handle, if it has one. 262,144: eight
 * processes of 32,000 kernels each.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct kernel_key);
	__type(value, __u64);
} name_by_registration SEC(".maps");

/* Entry of __hipRegisterFunction. */
static __always_inline void stub_entered(struct pt_regs *ctx, struct thread *t,
					 const struct call_api *api, __u64 sp)
{
	struct kernel_key key = { .process = t->process, .handle = PT_REGS_PARM2(ctx) };
	__u64 name = PT_REGS_PARM4(ctx);

	/* Another library may have been at this address. */
	bpf_map_delete_elem(&function_by_handle, &key);
	bpf_map_update_elem(&name_by_registration, &key, &name, BPF_ANY);
}

/* Returns the number of the kernel that was launched by a handle of the program. */
static __noinline __u64 function_registered(__u64 process, __u64 handle, bool may_sleep)
{
	struct kernel_key key = { .process = process, .handle = handle };
	__u64 *known = bpf_map_lookup_elem(&function_by_handle, &key), *name;

	if (known)
		return *known;
	name = bpf_map_lookup_elem(&name_by_registration, &key);
	if (name) {
		name_learn(process, handle, *name, may_sleep);
		known = bpf_map_lookup_elem(&function_by_handle, &key);
	}
	return known ? *known : FUNCTION_STUB | (handle & FUNCTION_BITS);
}

static __always_inline __u64 call_function(struct thread *t, const struct call_api *api,
					   bool may_sleep)
{
	__u64 function = t->call.facts.function;

	return api->detail == LAUNCH_HOST ? function_registered(t->process, function, may_sleep)
					  : function_of(t->process, function);
}

#endif
