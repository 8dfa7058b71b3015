/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CUDA_CALLS_H
#define GPU_GADGETS_CUDA_CALLS_H

#include "cuda/inflight.h"

#include "call/read.h"
#include "cuda/context.h"
#include "cuda/live.h"
#include "cuda/vmm.h"

/*
 * calls: following one driver call from its entry to its return. The
 * outermost call of a thread owns what it does: calls that the driver makes to
 * its own exports are nested and not counted again.
 */
#define CUDA_API_SLOTS 64
_Static_assert(CUDA_API_COUNT <= CUDA_API_SLOTS, "the next power of two, please");

static const struct cuda_api cuda_apis[CUDA_API_SLOTS] = {
#define X(symbol, op, kind, flags, a, b, c) [API_##symbol] = { op, kind, flags, a, b, c },
	CUDA_APIS(X)
#undef X
};

/*
 * The row of an API; one with CUDA_OP_NONE for an id that is none. The mask is
 * in assembly because the compiler would drop it where it knows better than the
 * verifier.
 */
static __always_inline const struct cuda_api *cuda_api_of(__u64 id)
{
	asm volatile("%0 &= %1" : "+r"(id) : "i"(CUDA_API_SLOTS - 1));
	return &cuda_apis[id];
}

struct call_arguments {
	__u64 value[8]; /* the first five; a power of two for the mask */
};

static __always_inline void call_arguments(struct pt_regs *ctx, struct call_arguments *args)
{
	__builtin_memset(args, 0, sizeof(*args));
	args->value[0] = PT_REGS_PARM1(ctx);
	args->value[1] = PT_REGS_PARM2(ctx);
	args->value[2] = PT_REGS_PARM3(ctx);
	args->value[3] = PT_REGS_PARM4(ctx);
	args->value[4] = PT_REGS_PARM5(ctx);
}

/* The context that a call is about to destroy; 0: none, or not known. */
static __always_inline __u64 call_dooms(const struct cuda_api *api, struct inflight *call,
					__u64 process)
{
	struct primary *p;

	switch (api->op) {
	case CUDA_CTX_DESTROY:
		return call->a;
	case CUDA_PRIMARY_RESET:
		p = primary_of(process, call->a);
		return p ? p->handle : 0;
	case CUDA_PRIMARY_RELEASE:
		p = primary_of(process, call->a);
		return p && p->references == 1 ? p->handle : 0;
	default:
		return 0;
	}
}

static __always_inline void call_live_key(struct live_key *key, const struct cuda_api *api,
					  __u64 process, __u64 pointer)
{
	key->process = process;
	key->pointer = api->flags & CUDA_ABI1 ? (__u32)pointer : pointer;
	key->space = live_space_of(api);
	key->pad = 0;
}

/* A free took its allocation out and did not succeed: put it back. */
static __always_inline void call_undo_free(struct thread *t, const struct cuda_api *api)
{
	struct live_key key;

	call_live_key(&key, api, t->process, t->call.a);
	if (bpf_map_update_elem(&live_by_pointer, &key, &t->call.live, BPF_NOEXIST))
		drop(DROP_LIVE_FULL);
	t->call.popped = 0;
}

/* The thread's previous call never returned (longjmp, a C++ exception). */
static __always_inline void call_abandon(struct thread *t)
{
	drop(DROP_INFLIGHT_STALE);
	if (t->call.popped)
		call_undo_free(t, cuda_api_of(t->call.api));
}

/* Entry of API `id`. Runs in programs that may not sleep. */
static __always_inline void call_enter(struct pt_regs *ctx, struct thread *t, __u32 id)
{
	const struct cuda_api *api;
	struct call_arguments args;
	struct inflight *call;
	struct handle *handle;
	struct live_key key;
	__u64 sp = PT_REGS_SP(ctx);
	__u64 process, a, doomed;

	api = cuda_api_of(id);
	if (!api->op)
		return;
	if (!t)
		t = thread_current(process_id_of(task_current()), true);
	if (!t) {
		drop(DROP_SCRATCH);
		return;
	}
	if (id == API_cuCtxGetDevice) {
		context_ask(ctx, t);
		return;
	}
	t->device_sp = 0;
	process = t->process;
	call = &t->call;
	call_arguments(ctx, &args);
	a = args.value[api->a & 7];
	if (call->sp) {
		if (sp < call->sp)
			return; /* nested */
		if (sp == call->sp && id == call->api && a == call->a)
			return; /* one file, probed through two paths */
		call_abandon(t);
	}
	call->sp = sp;
	call->ip = PT_REGS_IP(ctx);
	call->api = id;
	call->a = a;
	call->b = args.value[api->b & 7];
	call->c = args.value[api->c & 7];
	/* Two CPUs may read the same nanosecond: the thread makes it unique. */
	call->serial = serial_of(bpf_ktime_get_boot_ns());
	call->popped = 0;

	switch (api->op) {
	case CUDA_FREE:
		call_live_key(&key, api, process, a);
		if (!a)
			break; /* freeing nothing is allowed */
		call->popped = live_pop(&key, &call->live);
		break;
	case CUDA_VMM_RETAIN:
		call->c = vmm_pin(process, call->b);
		break;
	case CUDA_VMM_RELEASE:
		handle = vmm_handle(process, a);
		call->c = handle ? handle->serial : 0;
		break;
	case CUDA_CTX_DESTROY:
	case CUDA_PRIMARY_RESET:
	case CUDA_PRIMARY_RELEASE:
		doomed = call_dooms(api, call, process);
		call->c = doomed;
		if (doomed)
			live_doom(process, doomed, call->serial, DOOM_MARK);
		break;
	}
}

/* CUDA_ARRAY3D_DESCRIPTOR; the 2D one has no depth, the first ABI 32-bit sizes. */
struct array_shape {
	__u64 width, height, depth;
	__u32 format, channels;
	__u64 elements; /* sum over the levels walked */
	__u64 layers;	/* 1: depth counts layers or faces, and stays */
};

/* CUDA_ARRAY3D_LAYERED and CUDA_ARRAY3D_CUBEMAP */
#define ARRAY_LAYERED 0x01
#define ARRAY_CUBEMAP 0x04

/* Bytes of one channel, by CUarray_format (cuda.h 12.4). Others: 1. */
static __always_inline __u32 array_format_bytes(__u32 format)
{
	switch (format) {
	case 0x02: /* UNSIGNED_INT16 */
	case 0x09: /* SIGNED_INT16 */
	case 0x10: /* HALF */
		return 2;
	case 0x03: /* UNSIGNED_INT32 */
	case 0x0a: /* SIGNED_INT32 */
	case 0x20: /* FLOAT */
		return 4;
	default:
		return 1;
	}
}

/* A dimension of 0 is absent: it counts as 1. Each level halves, down to 1. */
LOOP_CONTEXT(array_shape, array_here)

LOOP_STEP(array_level, array_shape, s, array_here)
{
	__u64 width = s->width | !s->width, height = s->height | !s->height,
	      depth = s->depth | !s->depth;

	s->elements += width * height * depth;
	s->width = (width >> 1) | (width == 1);
	s->height = (height >> 1) | (height == 1);
	if (!s->layers)
		s->depth = (depth >> 1) | (depth == 1);
	/* The driver clamps the number of levels to those down to one texel. */
	return width == 1 && height == 1 && (depth == 1 || s->layers);
}

static __noinline int call_array_size(struct thread *t, __u32 id, bool may_sleep)
{
	const struct cuda_api *api;
	struct array_shape shape = {};
	__u32 narrow[6] = {};
	__u64 wide[5] = {};
	__u64 levels = 1;
	bool is_3d;

	if (!t)
		return 0;
	api = cuda_api_of(id);
	is_3d = api->op != CUDA_ARRAY;
	if (api->flags & CUDA_ABI1) {
		if (!call_read(narrow, is_3d ? 24 : 16, t->call.b, may_sleep))
			return 0;
		shape.width = narrow[0];
		shape.height = narrow[1];
		shape.depth = is_3d ? narrow[2] : 0;
		shape.format = is_3d ? narrow[3] : narrow[2];
		shape.channels = is_3d ? narrow[4] : narrow[3];
	} else {
		if (!call_read(wide, is_3d ? 40 : 24, t->call.b, may_sleep))
			return 0;
		shape.width = wide[0];
		shape.height = wide[1];
		shape.depth = is_3d ? wide[2] : 0;
		shape.format = (__u32)(is_3d ? wide[3] : wide[2]);
		shape.channels = (is_3d ? wide[3] : wide[2]) >> 32;
		narrow[5] = wide[4]; /* 0 when 2D */
	}
	shape.layers = (narrow[5] & (ARRAY_LAYERED | ARRAY_CUBEMAP)) != 0;
	if (api->op == CUDA_MIPMAP)
		levels = (__u32)t->call.c ?: 1;
	/* 2^31 is beyond any texture dimension. */
	LOOP_ON(levels < 32 ? levels : 32, array_level, shape, array_here);
	t->call.live.size_bytes = shape.elements * shape.channels * array_format_bytes(shape.format);
	return 1;
}

/* CUmemAllocationProp and CUmemPoolProps: location {type, id} is at byte 8. */
static __always_inline __s32 call_location_device(struct thread *t, __u64 props, bool may_sleep)
{
	__s32 location[2];

	if (!call_read(location, sizeof(location), props + 8, may_sleep))
		return -1;
	return location[0] == 1 /* CU_MEM_LOCATION_TYPE_DEVICE */ ? location[1] : -1;
}

/* Bytes that an allocating call asked for, before it is known what it got. */
static __always_inline __u64 call_requested(const struct cuda_api *api, const struct inflight *call)
{
	__u64 size = api->op == CUDA_ALLOC_PITCH ? 0 : call->b;

	return api->flags & (CUDA_ABI1 | CUDA_SIZE32) ? (__u32)size : size;
}

static __always_inline bool call_allocates(__u8 op)
{
	switch (op) {
	case CUDA_ALLOC:
	case CUDA_ALLOC_POOL:
	case CUDA_ALLOC_PITCH:
	case CUDA_REGISTER:
	case CUDA_ARRAY:
	case CUDA_ARRAY3D:
	case CUDA_MIPMAP:
	case CUDA_VMM_CREATE:
		return true;
	default:
		return false;
	}
}

/*
 * Fills `key` and t->call.live (all but the stack) for an allocating call that
 * succeeded. False: an argument was unreadable, which is counted.
 */
static __always_inline bool call_allocated(struct thread *t, const struct cuda_api *api,
					   struct live_key *key, bool may_sleep)
{
	struct inflight *call = &t->call;
	struct live *fresh = &call->live;
	__u32 word = api->flags & CUDA_ABI1 ? 4 : 8;
	__u64 pointer = 0, size = 0;

	/* Array handles are pointers in every ABI. */
	if (api->kind == KIND_ARRAY)
		word = 8;
	if (api->op == CUDA_REGISTER)
		pointer = call->a;
	else if (!call_read(&pointer, word, call->a, may_sleep))
		return false;

	switch (api->op) {
	case CUDA_ALLOC_PITCH:
		if (!call_read(&size, word, call->b, may_sleep))
			return false;
		size *= api->flags & CUDA_ABI1 ? (__u32)call->c : call->c;
		break;
	case CUDA_ARRAY:
	case CUDA_ARRAY3D:
	case CUDA_MIPMAP:
		if (!call_array_size(t, t->call.api, may_sleep))
			return false;
		size = fresh->size_bytes;
		break;
	default:
		size = call_requested(api, call);
	}
	key->process = t->process;
	key->pointer = pointer;
	key->space = live_space_of(api);
	key->pad = 0;
	fresh->size_bytes = size;
	fresh->serial = call->serial;
	fresh->doom = 0;
	fresh->foreign = 0;
	fresh->kind = api->kind;
	fresh->references = 1;
	if (api->op == CUDA_VMM_CREATE || api->op == CUDA_ALLOC_POOL)
		fresh->context = context_current(t, &fresh->device); /* its device comes from elsewhere */
	else
		fresh->context = context_needed(t, &fresh->device);
#ifdef LINUX_5_10
	fresh->context = instance_of(t->process, fresh->context);
#endif
	if (api->op == CUDA_VMM_CREATE) {
		vmm_handle_made(t->process, pointer, call->serial);
		fresh->handle = pointer;
		key->pointer = call->serial;
		fresh->context = 0; /* physical memory outlives contexts */
		fresh->device = call_location_device(t, call->c, may_sleep);
	} else if (api->op == CUDA_ALLOC_POOL) {
		fresh->device = context_device(t->process, call->c);
	}
	return true;
}

/* Return of a call that does not allocate. `failed`: it had no effect. */
static __noinline int call_returned(struct thread *t, __u32 id, bool failed, bool may_sleep)
{
	const struct cuda_api *api;
	struct inflight *call;
	struct live_key key;
	struct live *foreign;
	struct primary *p;
	struct handle *handle;
	__u64 number = 0;

	if (!t)
		return 0;
	api = cuda_api_of(id);
	call = &t->call;
	foreign = &call->live;
	switch (api->op) {
	case CUDA_FREE:
		if (failed && call->popped)
			call_undo_free(t, api);
		else if (call->popped)
			row_free(t->process, &call->live, false);
		else if (!failed && call->a)
			drop(DROP_FREE_UNKNOWN);
		return 0;
	case CUDA_CTX_DESTROY:
	case CUDA_PRIMARY_RESET:
	case CUDA_PRIMARY_RELEASE:
		if (call->c)
			live_doom(t->process, call->c, call->serial,
				  failed ? DOOM_CLEAR : DOOM_FREE);
		if (failed)
			return 0;
		if (api->op == CUDA_CTX_DESTROY) {
			context_destroyed(t, call->a);
		} else if (api->op == CUDA_PRIMARY_RELEASE) {
			p = primary_of(t->process, call->a);
			if (p && p->references)
				__sync_fetch_and_add(&p->references, -1);
		}
		return 0;
	}
	if (api->op == CUDA_VMM_RETAIN) {
		if (!failed && call_read(&number, 8, call->a, may_sleep))
			vmm_retain(t->process, number, call->c);
		else if (call->c)
			vmm_unref(t->process, call->c);
		return 0;
	}
	if (failed)
		return 0;
	switch (api->op) {
	case CUDA_VMM_RELEASE:
		if (call->c)
			vmm_release(t->process, call->a, call->c);
		else
			drop(DROP_FREE_UNKNOWN);
		break;
	case CUDA_VMM_MAP:
		vmm_map(t->process, call->a, call->b, call->c);
		break;
#ifndef LINUX_5_10
	case CUDA_VMM_UNMAP:
		vmm_unmap(t->process, call->a, call->b);
		break;
#endif
	case CUDA_VMM_IMPORT:
		if (!call_read(&number, 8, call->a, may_sleep))
			break;
		handle = vmm_handle(t->process, number);
		if (handle) {
			__sync_fetch_and_add(&handle->references, 1);
			break;
		}
		vmm_key(&key, t->process, call->serial);
		__builtin_memset(foreign, 0, sizeof(*foreign));
		foreign->kind = KIND_VMM;
		foreign->serial = call->serial;
		foreign->references = 1;
		foreign->foreign = 1;
		foreign->handle = number;
		if (bpf_map_update_elem(&live_by_pointer, &key, foreign, BPF_ANY))
			drop(DROP_LIVE_FULL);
		vmm_handle_made(t->process, number, call->serial);
		break;
	case CUDA_CTX_CREATE:
		if (call_read(&number, 8, call->a, may_sleep)) {
			context_learn(t->process, number, call->b);
			context_push(t, number);
		}
		break;
	case CUDA_CTX_SET:
		context_set(t, call->a);
		break;
	case CUDA_CTX_PUSH:
		context_push(t, call->a);
		break;
	case CUDA_CTX_POP:
		context_pop(t);
		break;
	case CUDA_PRIMARY_RETAIN:
		if (call_read(&number, 8, call->a, may_sleep))
			primary_retain(t->process, number, call->b);
		break;
	case CUDA_POOL_CREATE:
		if (call_read(&number, 8, call->a, may_sleep))
			context_learn(t->process, number,
				      call_location_device(t, call->b, may_sleep));
		break;
	case CUDA_POOL_DEVICE:
		if (call_read(&number, 8, call->a, may_sleep))
			context_learn(t->process, number, call->b);
		break;
	}
	return 0;
}

#endif
