/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_ARGUMENTS_H
#define GPU_GADGETS_LAUNCH_ARGUMENTS_H

#include "call/arguments.h"
/*
 * arguments: reads the arguments of a call at its entry, and what a launch, a copy or a set has
 * in them once it has returned, as its row says.
 */

/* Whether the vendor's table has such rows: its programs have no code for those it does not have. */
enum {
#define X(symbol, op, detail, flags, a, b) \
	+(((op) == CALL_LAUNCH || (op) == CALL_LAUNCH_MULTI) && (detail) == LAUNCH_HOST)
	LAUNCHES_BY_HANDLE = (0 LAUNCH_CALLS(X)) > 0,
#undef X
#define X(symbol, op, detail, flags, a, b) +((op) == CALL_LAUNCH && (detail) == LAUNCH_ITEMS)
	LAUNCHES_OF_ITEMS = (0 LAUNCH_CALLS(X)) > 0,
#undef X
#define X(symbol, op, detail, flags, a, b) +((op) == CALL_COPY && (detail) & COPY_BY_KIND)
	COPIES_BY_KIND = (0 COPY_CALLS(X)) > 0,
#undef X
#define X(symbol, op, detail, flags, a, b) +((op) == CALL_COPY_3D && (detail) & COPY_SECOND)
	COPIES_BY_SECOND = (0 COPY_CALLS(X)) > 0,
#undef X
#define X(symbol, op, detail, flags, a, b) +(((flags) & CALL_ON_STACK) != 0)
	CALLS_ON_STACK = (0 COPY_CALLS(X)) > 0,
#undef X
#define X(symbol, op, detail, flags, a, b) +(((flags) & (CALL_2D | CALL_3D)) != 0)
	CALLS_WITH_EXTENTS = (0 COPY_CALLS(X)) > 0,
#undef X
#define X(symbol, op, detail, flags, a, b) +(((flags) & CALL_OF_CONTEXT) != 0)
	CALLS_OF_CONTEXTS = (0 OTHER_CALLS(X)) > 0,
#undef X
#define X(library, symbol, op, a) +((op) == CALL_STUB)
	STUBS = (0 LIBRARY_CALLS(X)) > 0,
#undef X
#define X(library, symbol, op, a) +((op) == CALL_REGISTER)
	REGISTRATIONS = (0 LIBRARY_CALLS(X)) > 0,
#undef X
};

static __always_inline bool has_more_arguments(const struct call_api *api)
{
	return api->op == CALL_LAUNCH || (CALLS_ON_STACK && api->flags & CALL_ON_STACK);
}

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

/* Entry of a function by which a program registers a kernel. */
static __always_inline void kernel_registered(struct pt_regs *ctx, struct thread *t,
					      const struct call_api *api)
{
	__u64 words[8] = {}; /* six, and a power of two for the mask */

	arguments_in_registers(ctx, words, 0, 6);
	function_register(t->process, words[api->a & 7], words[(api->a + 2) & 7]);
}

/* Returns the number of the kernel that a call which has returned launched. */
static __always_inline __u64 call_function(struct thread *t, const struct call_api *api,
					   bool may_sleep)
{
	struct inflight *call = &t->call;

	if (LAUNCHES_BY_HANDLE && api->detail == LAUNCH_HOST)
		return function_registered(t->process, call->facts.function, may_sleep);
	if (!STUBS)
		return function_of(t->process, call->facts.function);
	return function_launched(t->process, call->facts.function, call->stub_sp ? call->stub : 0);
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

/* LAUNCH_HOST */
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
	if (LAUNCHES_BY_HANDLE && detail == LAUNCH_HOST) {
		facts_launch_host(f, call);
		return;
	}
	f->shape.shared_bytes = call->argument[7];
	for (int i = 0; i < 3; i++) {
		f->shape.grid[i] = call->argument[1 + i];
		f->shape.block[i] = call->argument[4 + i];
		/* The last block of a dimension may be smaller. */
		if (LAUNCHES_OF_ITEMS && detail == LAUNCH_ITEMS && f->shape.block[i])
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
	bool is_host = LAUNCHES_BY_HANDLE && detail == LAUNCH_HOST;
	__u64 words[LAUNCHES_BY_HANDLE ? 7 : 6];

	if (!call_read(words, sizeof(words), first, may_sleep))
		return;
	f->function = words[0];
	__builtin_memcpy(&f->shape, &words[1], 24);
	f->shape.shared_bytes = is_host ? words[5] : words[4];
	f->shape.launches = count;
	f->stream = is_host ? words[LAUNCHES_BY_HANDLE ? 6 : 0] : words[5];
}

static __always_inline __u32 kind_direction(__u32 kind)
{
	switch (kind) {
#define X(number, direction) \
	case number: \
		return direction;
		COPY_KINDS(X)
#undef X
	}
	return COPY_ANY;
}

/* The direction of a CALL_COPY. */
static __always_inline __u32 call_direction(const struct inflight *call, __u8 detail)
{
	if (COPIES_BY_KIND && detail & COPY_BY_KIND)
		return kind_direction(call_argument(call, COPY_KIND_AT(detail)));
	return detail;
}

/* An extent of which argument a is `elements`. */
static __always_inline __u64 call_extent(const struct inflight *call, const struct call_api *api,
					 __u64 elements)
{
	if (CALLS_WITH_EXTENTS && api->flags & CALL_2D)
		elements *= call_argument(call, api->a + 1);
	if (CALLS_WITH_EXTENTS && api->flags & CALL_3D)
		elements *= call_argument(call, api->a + 2);
	return elements;
}

static __always_inline void facts_copy(struct call_facts *f, const struct inflight *call,
				       const struct call_api *api, __u64 a)
{
	f->direction = call_direction(call, api->detail);
	f->bytes = call_extent(call, api, a);
}

/* The bytes of many copies that one call makes: an array of as many words as `left`. */
struct copy_batch {
	__u64 at, left, bytes;
};

#define BATCH_WORDS 8
#define BATCH_TURNS 8192 /* 65,536 copies; one of KV blocks has some thousands */

LOOP_CONTEXT(copy_batch, copy_batch_here)

LOOP_STEP(copy_batch_step, copy_batch, s, copy_batch_here)
{
	__u64 words[BATCH_WORDS] = {};
	__u64 n = s->left < BATCH_WORDS ? s->left : BATCH_WORDS;

	if (!n || bpf_probe_read_user(words, n * sizeof(words[0]), (void *)s->at))
		return 1;
	for (int i = 0; i < BATCH_WORDS; i++)
		s->bytes += words[i];
	s->at += n * sizeof(words[0]);
	s->left -= n;
	return 0;
}

/* Their sum. What cannot be read, or is too many, is counted as an argument that was not read. */
static __always_inline __u64 batch_bytes(__u64 at, __u64 count)
{
	struct copy_batch s = { .at = at, .left = count };

	LOOP_ON(BATCH_TURNS, copy_batch_step, s, copy_batch_here);
	if (s.left)
		drop(DROP_READ_ARGUMENT);
	return s.bytes;
}

static __always_inline void facts_set(struct call_facts *f, const struct inflight *call,
				      const struct call_api *api, __u64 a)
{
	f->bytes = call_extent(call, api, a) * api->detail;
}

/* to 0: at `from` is the kind of the copy instead of a type of memory. */
struct copy_layout {
	__u8 from, to, extent;
};

static const struct copy_layout copy_3d_layouts[] = {
#define X(from, to, extent) { from, to, extent },
	COPY_3D_LAYOUTS(X)
#undef X
};

static __always_inline void facts_copy_3d(struct call_facts *f, __u64 at, __u8 detail,
					  bool may_sleep)
{
	const struct copy_layout *l =
		&copy_3d_layouts[COPIES_BY_SECOND && detail & COPY_SECOND ? 1 : 0];
	__u64 extent[3];
	__u32 from, to;

	if (!call_read(&from, 4, at + l->from, may_sleep) ||
	    (l->to && !call_read(&to, 4, at + l->to, may_sleep)) ||
	    !call_read(extent, sizeof(extent), at + l->extent, may_sleep))
		return;
	f->direction = l->to ? detail ?: copy_direction(from, to) : kind_direction(from);
	f->bytes = extent[0] * extent[1] * extent[2];
}

#endif
