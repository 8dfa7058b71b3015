/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_CUDA_ARGUMENTS_H
#define GPU_GADGETS_LAUNCH_CUDA_ARGUMENTS_H

/*
 * arguments: where calls of the CUDA driver have what launch/calls.h reads. Those of HIP are
 * in hip/arguments.h.
 */

/* Arguments from the seventh on that are read: cuLaunchKernel has nine of interest. */
#define MORE_ARGUMENTS 3

static __always_inline bool has_more_arguments(const struct call_api *api)
{
	return api->op == CALL_LAUNCH;
}

static __always_inline void facts_launch(struct call_facts *f, const struct inflight *call,
					 __u8 detail)
{
	for (int i = 0; i < 3; i++) {
		f->shape.grid[i] = call->argument[1 + i];
		f->shape.block[i] = call->argument[4 + i];
	}
	f->shape.shared_bytes = call->argument[7];
	f->shape.launches = 1;
}

/* CUDA_LAUNCH_PARAMS: the function, grid, block and shared memory, the stream at 40. All
 * of them have the same kernel and shape. */
static __always_inline void facts_launch_multi(struct call_facts *f, __u64 first, __u32 count,
					       __u8 detail, bool may_sleep)
{
	__u64 words[6];

	if (!call_read(words, sizeof(words), first, may_sleep))
		return;
	f->function = words[0];
	__builtin_memcpy(&f->shape, &words[1], 28);
	f->shape.launches = count;
	f->stream = words[5];
}

/* CUmemorytype: host 1, device 2, array 3, unified 4. */
static __always_inline __u32 copy_direction(__u32 from, __u32 to)
{
	if (from < 1 || from > 3 || to < 1 || to > 3)
		return COPY_ANY;
	if (from == 1)
		return to == 1 ? COPY_HTOH : COPY_HTOD;
	return to == 1 ? COPY_DTOH : COPY_DTOD;
}

static __always_inline void facts_copy(struct call_facts *f, const struct inflight *call,
				       const struct call_api *api, __u64 a)
{
	f->direction = api->detail;
	f->bytes = a;
}

static __always_inline void facts_set(struct call_facts *f, const struct inflight *call,
				      const struct call_api *api, __u64 a)
{
	f->bytes = a * api->detail;
}

/* CUDA_MEMCPY3D and its _PEER: types at 32 and 120, width, height and depth at 176. */
static __always_inline void facts_copy_3d(struct call_facts *f, __u64 at, __u32 direction,
					  bool may_sleep)
{
	__u64 extent[3];
	__u32 from, to;

	if (!call_read(&from, 4, at + 32, may_sleep) || !call_read(&to, 4, at + 120, may_sleep) ||
	    !call_read(extent, sizeof(extent), at + 176, may_sleep))
		return;
	f->direction = direction ?: copy_direction(from, to);
	f->bytes = extent[0] * extent[1] * extent[2];
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
