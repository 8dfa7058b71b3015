/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_ARGUMENTS_H
#define GPU_GADGETS_LAUNCH_ARGUMENTS_H

#include "call/arguments.h"
#ifdef VENDOR_HIP
#include "hip/arguments.h"
#else
#include "launch/cuda/arguments.h"
#endif

/*
 * arguments: reads the arguments of a call at its entry, and what a launch, a copy or a set has
 * in them once it has returned. What differs between vendors is in the headers above.
 */
static __always_inline void call_arguments(struct pt_regs *ctx, struct inflight *call,
					   const struct call_api *api)
{
	__u64 words[6 + MORE_ARGUMENTS - REGISTER_ARGUMENTS];

	arguments_in_registers(ctx, call->argument, 0, 6);
	if (!has_more_arguments(api))
		return;
	arguments_in_registers(ctx, call->argument, 6, REGISTER_ARGUMENTS);
	if (bpf_probe_read_user(words, sizeof(words), (void *)STACK_ARGUMENTS_AT(ctx)))
		drop(DROP_READ_ARGUMENT);
	/* Through the stack: see user_read_words(). */
	for (int i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		call->argument[REGISTER_ARGUMENTS + i] = words[i];
}

static __always_inline bool is_memory_type(__u32 type)
{
	return type == 1 || type == 2 || type == ARRAY_MEMORY_TYPE;
}

/* By the types of memory, as drivers number them: host 1, device 2, an array. */
static __always_inline __u32 copy_direction(__u32 from, __u32 to)
{
	if (!is_memory_type(from) || !is_memory_type(to))
		return COPY_ANY;
	if (from == 1)
		return to == 1 ? COPY_HTOH : COPY_HTOD;
	return to == 1 ? COPY_DTOH : COPY_DTOD;
}

/* A launch by the program's handle has dim3 by value: in two registers each, x and y, z. */
static __always_inline void facts_launch_host(struct call_facts *f, const struct inflight *call)
{
	f->shape.grid[0] = call->argument[1];
	f->shape.grid[1] = call->argument[1] >> 32;
	f->shape.grid[2] = call->argument[2];
	f->shape.block[0] = call->argument[3];
	f->shape.block[1] = call->argument[3] >> 32;
	f->shape.block[2] = call->argument[4];
	f->shape.shared_bytes = call->argument[6];
}

static __always_inline void facts_launch(struct call_facts *f, const struct inflight *call,
					 __u8 detail)
{
	f->shape.launches = 1;
	if (LAUNCH_HOST && detail == LAUNCH_HOST) {
		facts_launch_host(f, call);
		return;
	}
	f->shape.shared_bytes = call->argument[7];
	for (int i = 0; i < 3; i++) {
		f->shape.grid[i] = call->argument[1 + i];
		f->shape.block[i] = call->argument[4 + i];
		/* The last block of a dimension may be smaller. */
		if (LAUNCH_ITEMS && detail == LAUNCH_ITEMS && f->shape.block[i])
			f->shape.grid[i] = f->shape.grid[i] / f->shape.block[i] +
					   (f->shape.grid[i] % f->shape.block[i] != 0);
	}
}

/* CUDA_LAUNCH_PARAMS and hipFunctionLaunchParams: the function, grid, block and shared memory, the
 * stream at 40. All of them have the same kernel and shape. hipLaunchParams has the arguments
 * before the shared memory. */
static __always_inline void facts_launch_multi(struct call_facts *f, __u64 first, __u32 count,
					       __u8 detail, bool may_sleep)
{
	bool is_host = LAUNCH_HOST && detail == LAUNCH_HOST;
	__u64 words[LAUNCH_HOST ? 7 : 6];

	if (!call_read(words, sizeof(words), first, may_sleep))
		return;
	f->function = words[0];
	__builtin_memcpy(&f->shape, &words[1], 24);
	f->shape.shared_bytes = is_host ? words[5] : words[4];
	f->shape.launches = count;
	f->stream = is_host ? words[LAUNCH_HOST ? 6 : 0] : words[5];
}

static __always_inline void facts_copy(struct call_facts *f, const struct inflight *call,
				       const struct call_api *api, __u64 a)
{
	f->direction = call_direction(call, api->detail);
	f->bytes = call_extent(call, api, a);
}

static __always_inline void facts_set(struct call_facts *f, const struct inflight *call,
				      const struct call_api *api, __u64 a)
{
	f->bytes = call_extent(call, api, a) * api->detail;
}

static __always_inline void facts_copy_3d(struct call_facts *f, __u64 at, __u8 detail,
					  bool may_sleep)
{
	__u64 extent[3];
	__u32 from, to;

	if (!call_read(&from, 4, at + COPY_3D_FROM(detail), may_sleep) ||
	    !call_read(&to, 4, at + COPY_3D_TO(detail), may_sleep) ||
	    !call_read(extent, sizeof(extent), at + COPY_3D_EXTENT(detail), may_sleep))
		return;
	f->direction = copy_3d_known(detail, from) ?: copy_direction(from, to);
	f->bytes = extent[0] * extent[1] * extent[2];
}

#endif
