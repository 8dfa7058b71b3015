/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_ARGUMENTS_H
#define GPU_GADGETS_HIP_ARGUMENTS_H

/*
 * arguments: where calls of HIP have what launch/arguments.h reads of those of the CUDA driver
 * (launch/cuda/arguments.h), and the names of kernels that a program registers. x86-64 only,
 * as HIP.
 */

/* Arguments on the stack that are read: hipMemset3D has seven. */
#define MORE_ARGUMENTS 8

static __always_inline bool has_more_arguments(const struct call_api *api)
{
	return api->flags & CALL_ON_STACK;
}

/* hipMemoryType of HIP 6: host 1, device 2; others are either's. */
#define ARRAY_MEMORY_TYPE 10

/*
 * HIP_MEMCPY3D and hipMemcpy3DParms: where the types are, and width, height and depth. The latter
 * has the kind instead of the types; where an array takes part, its width is in elements, whose
 * size is not known here: 1 byte.
 */
#define COPY_3D_FROM(detail) ((detail) == COPY_PARMS ? 152 : 32)
#define COPY_3D_TO(detail) ((detail) == COPY_PARMS ? 152 : 112)
#define COPY_3D_EXTENT(detail) ((detail) == COPY_PARMS ? 128 : 160)

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

/* A direction that does not depend on the types; 0: it does. */
static __always_inline __u32 copy_3d_known(__u8 detail, __u32 from)
{
	return detail == COPY_PARMS ? kind_direction(from) : COPY_NONE;
}

static __always_inline __u32 call_direction(const struct inflight *call, __u8 detail)
{
	return detail & 8 ? kind_direction(call_argument(call, detail >> 4)) : detail;
}

static __always_inline __u64 call_extent(const struct inflight *call, const struct call_api *api,
					 __u64 elements)
{
	if (api->flags & CALL_2D)
		elements *= call_argument(call, api->a + 1);
	if (api->flags & CALL_3D)
		elements *= call_argument(call, api->a + 2);
	return elements;
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
