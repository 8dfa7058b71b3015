/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_CUDA_ARGUMENTS_H
#define GPU_GADGETS_LAUNCH_CUDA_ARGUMENTS_H

/*
 * arguments: where calls of the CUDA driver have what launch/arguments.h reads. Those of HIP are
 * in hip/arguments.h.
 */

/* Arguments from the seventh on that are read: cuLaunchKernel has nine of interest. */
#define MORE_ARGUMENTS 3

static __always_inline bool has_more_arguments(const struct call_api *api)
{
	return api->op == CALL_LAUNCH;
}

/* Details of launches that CUDA does not have: see hip/launch_apis.h. */
#define LAUNCH_HOST 0
#define LAUNCH_ITEMS 0

/* CUmemorytype: host 1, device 2, unified 4. */
#define ARRAY_MEMORY_TYPE 3

/* CUDA_MEMCPY3D and its _PEER: where the types are, and width, height and depth. */
#define COPY_3D_FROM(detail) 32
#define COPY_3D_TO(detail) 120
#define COPY_3D_EXTENT(detail) 176

/* A direction that does not depend on the types; 0: it does. */
static __always_inline __u32 copy_3d_known(__u8 detail, __u32 from)
{
	return detail;
}

static __always_inline __u32 call_direction(const struct inflight *call, __u8 detail)
{
	return detail;
}

static __always_inline __u64 call_extent(const struct inflight *call, const struct call_api *api,
					 __u64 elements)
{
	return elements;
}

/* Entry of a launch of the runtime. */
static __always_inline void stub_entered(struct pt_regs *ctx, struct thread *t,
					 const struct call_api *api, __u64 sp)
{
	struct inflight *call = &t->call;
	__u64 first, second;

	/* Both are read, because the verifier rejects a variable offset into the context. */
	first = PT_REGS_PARM1(ctx);
	second = PT_REGS_PARM2(ctx);
	barrier_var(first);
	barrier_var(second);
	call->stub = api->a ? second : first;
	call->stub_sp = sp;
	if (budget_ppm)
		call->stub_window = window_of(API_LAUNCH_USUAL).number;
}

/* Returns the number of the kernel that a call which has returned launched. */
static __always_inline __u64 call_function(struct thread *t, const struct call_api *api,
					   bool may_sleep)
{
	struct inflight *call = &t->call;

	return function_launched(t->process, call->facts.function, call->stub_sp ? call->stub : 0);
}

#endif
