/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_CALLS_H
#define GPU_GADGETS_MEMORY_CALLS_H

#include "memory/enter.h"
#include "call/error.h"

/* calls: what a driver call that has returned allocated. */

/* CUDA_ARRAY3D_LAYERED and CUDA_ARRAY3D_CUBEMAP */
#define ARRAY_LAYERED 0x01
#define ARRAY_CUBEMAP 0x04
/* CUDA_ARRAY3D_SPARSE and CUDA_ARRAY3D_DEFERRED_MAPPING: cuMemMapArrayAsync maps memory of cuMemCreate,
 * which is counted there. */
#define ARRAY_WITHOUT_MEMORY (0x40 | 0x80)

#define ARRAY_FORMAT_BYTES 0x01 /* UNSIGNED_INT8 */

/* Compressed formats: CU_AD_FORMAT_BC1_UNORM to CU_AD_FORMAT_BC7_UNORM_SRGB. */
#define ARRAY_FORMAT_IN_BLOCKS(format) ((format) >= 0x91 && (format) <= 0x9e)
#define ARRAY_BLOCK_BITS 2 /* 4 × 4 texels */

/*
 * Bytes of a block, with all its channels (Direct3D 11.3 functional specification, 19.5; the DDS reader
 * of NVIDIA's OptiX Toolkit has the same for these formats).
 */
static __always_inline __u32 array_block_bytes(__u32 format)
{
	switch (format) {
	case 0x91: /* BC1_UNORM */
	case 0x92: /* BC1_UNORM_SRGB */
	case 0x97: /* BC4_UNORM */
	case 0x98: /* BC4_SNORM */
		return 8;
	default:
		return 16;
	}
}

/* Bytes of one channel, by CUarray_format (cuda.h 12.4) and hipArray_Format. Others: 1. */
static __always_inline __u32 array_format_bytes(__u32 format)
{
	switch (format) {
	case 0x02: /* UNSIGNED_INT16 */
	case 0x09: /* SIGNED_INT16 */
	case 0x10: /* HALF */
	case 0xc3: /* UNORM_INT16X1 */
	case 0xc4: /* UNORM_INT16X2 */
	case 0xc5: /* UNORM_INT16X4 */
	case 0xc9: /* SNORM_INT16X1 */
	case 0xca: /* SNORM_INT16X2 */
	case 0xcb: /* SNORM_INT16X4 */
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
	__u32 block = s->block & ARRAY_BLOCK_BITS, rest = (1 << block) - 1;

	s->elements += ((width + rest) >> block) * ((height + rest) >> block) * depth;
	s->width = (width >> 1) | (width == 1);
	s->height = (height >> 1) | (height == 1);
	if (!s->layers)
		s->depth = (depth >> 1) | (depth == 1);
	/* The driver clamps the number of levels to those down to one texel. */
	return width == 1 && height == 1 && (depth == 1 || s->layers);
}

static __noinline int call_array_size(struct thread *t, __u32 id, bool may_sleep)
{
	const struct memory_api *api;
	struct array_shape shape = {};
	__u32 narrow[6] = {};
	__u64 wide[5] = {};
	__u64 levels = 1;
	bool is_3d;

	if (!t)
		return 0;
	api = memory_api_of(id);
	is_3d = api->op != MEMORY_ARRAY;
	if (has_flag(api, MEMORY_CHANNELS)) {
		if (!call_read(narrow, 16, t->call.b, may_sleep))
			return 0;
		shape.width = t->call.extent[0].width;
		shape.height = t->call.extent[0].height;
		shape.depth = t->call.extent[0].depth;
		shape.format = ARRAY_FORMAT_BYTES;
		shape.channels = (narrow[0] + narrow[1] + narrow[2] + narrow[3]) / 8;
		narrow[5] = t->call.extent[0].flags;
	} else if (has_flag(api, MEMORY_ABI1)) {
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
	if (narrow[5] & ARRAY_WITHOUT_MEMORY) {
		t->call.live.size_bytes = 0;
		return 1;
	}
	shape.layers = (narrow[5] & (ARRAY_LAYERED | ARRAY_CUBEMAP)) != 0;
	shape.block = ARRAY_FORMAT_IN_BLOCKS(shape.format) ? ARRAY_BLOCK_BITS : 0;
	if (api->op == MEMORY_MIPMAP)
		levels = (__u32)t->call.c ?: 1;
	/* 2^31 is beyond any texture dimension. */
	LOOP_ON(levels < 32 ? levels : 32, array_level, shape, array_here);
	if (shape.block)
		t->call.live.size_bytes = shape.elements * array_block_bytes(shape.format);
	else
		t->call.live.size_bytes =
			shape.elements * shape.channels * array_format_bytes(shape.format);
	return 1;
}

/* What context_device() has for a pool in memory of the host. */
#define DEVICE_IS_HOST (-2)

/* Where CUmemAllocationProp and CUmemPoolProps have their location. */
#define LOCATION_OF_PROPS 8

/* The device of a CUmemLocation {type, id}. DEVICE_IS_HOST: it is no device; -1: not known. */
static __always_inline __s32 call_location_device(struct thread *t, __u64 at, bool may_sleep)
{
	__u32 location[2];

	if (!call_read(location, sizeof(location), at, may_sleep))
		return -1;
	if (location[0] == LOCATION_DEVICE)
		return location[1];
	if (location[0] >= LOCATION_HOST && location[0] <= LOCATION_HOST_NUMA_CURRENT)
		return DEVICE_IS_HOST;
	return -1;
}

/*
 * Fills in the kind and the device of what a call allocates, or was refused, and returns the
 * context that owns it; 0: none.
 */
static __always_inline __u64 call_place(struct thread *t, const struct memory_api *api,
					bool may_sleep)
{
	struct live *live = &t->call.live;
	__u64 context = 0;
	__s32 device;

	live->kind = api->kind;
	if (api->kind == KIND_CONTEXT) {
		live->device = t->call.b;
		return 0;
	}
	if (api->op == MEMORY_VMM_CREATE) { /* physical memory outlives contexts */
		live->device = -1;
		device = call_location_device(t, t->call.c + LOCATION_OF_PROPS, may_sleep);
	} else if (api->op == MEMORY_ALLOC_POOL) {
		context = context_needed(t, &live->device);
		context = context_owner(t, context, live->device);
		device = context_device(t->process, t->call.c);
	} else {
		context = context_needed(t, &live->device);
		return context_owner(t, context, live->device);
	}
	/* Pinned memory is that of the thread's device, if of any. */
	if (device == DEVICE_IS_HOST)
		live->kind = KIND_HOST;
	else if (device >= 0)
		live->device = device; /* else the thread's, whose pool it most likely is */
	return context;
}

/* Bytes that an allocating call requested, before it is known what it got. An array's are those
 * of call_array_size(). */
static __always_inline __u64 call_requested(const struct memory_api *api,
					    const struct inflight *call)
{
	__u64 size = api->op == MEMORY_ALLOC_PITCH || api->kind == KIND_CONTEXT ? 0 : call->b;

	if (api->kind == KIND_ARRAY)
		return call->live.size_bytes;
	return api->flags & (MEMORY_ABI1 | MEMORY_SIZE32) ? (__u32)size : size;
}

/* Whether a call has made a context. */
static __always_inline bool call_made_context(struct thread *t, __u8 op, __u32 result)
{
	if (op == MEMORY_CTX_CREATE)
		return !result || result == ERROR_OUT_OF_MEMORY;
	if (op != MEMORY_PRIMARY_RETAIN)
		return false;
	if (result)
		return result == ERROR_OUT_OF_MEMORY;
	return primary_is_new(t->process, t->call.b,
			      thread_took_ns(t->call.serial >> 8, t->call.c));
}

static __always_inline bool call_allocates(__u8 op)
{
	switch (op) {
	case MEMORY_ALLOC:
	case MEMORY_ALLOC_POOL:
	case MEMORY_ALLOC_PITCH:
	case MEMORY_REGISTER:
	case MEMORY_ARRAY:
	case MEMORY_ARRAY3D:
	case MEMORY_MIPMAP:
	case MEMORY_VMM_CREATE:
		return true;
	default:
		return false;
	}
}

/*
 * Fills `key` and t->call.live (all but the stack) for an allocating call that
 * succeeded. False: an argument was unreadable, which is counted.
 */
static __always_inline bool call_allocated(struct thread *t, const struct memory_api *api,
					   struct live_key *key, bool may_sleep)
{
	struct inflight *call = &t->call;
	struct live *fresh = &call->live;
	__u32 word = api->flags & MEMORY_ABI1 ? 4 : 8;
	__u64 pointer = 0, size = 0;

	/* Array handles are pointers in every ABI. */
	if (api->kind == KIND_ARRAY)
		word = 8;
	if (api->op == MEMORY_REGISTER)
		pointer = call->a;
	else if (!call_read(&pointer, word, call->a, may_sleep))
		return false;
	if (EMPTY_IS_NULL && !pointer)
		return false; /* of 0 bytes: there is nothing to free */

	switch (api->op) {
	case MEMORY_ALLOC_PITCH:
		if (!call_read(&size, word, call->b, may_sleep))
			return false;
		size *= api->flags & MEMORY_ABI1 ? (__u32)call->c : call->c;
		break;
	case MEMORY_ARRAY:
	case MEMORY_ARRAY3D:
	case MEMORY_MIPMAP:
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
	fresh->references = 1;
	fresh->owner = 0;
	fresh->context = call_place(t, api, may_sleep);
	if (api->op == MEMORY_VMM_CREATE) {
		if (!vmm_handle_made(t->process, pointer, call->serial))
			fresh->references = 0; /* its release would not be recognised */
		fresh->handle = pointer;
		key->pointer = call->serial;
		return true;
	}
	if (table_has_op(MEMORY_DEVICE_RESET))
		fresh->context = memory_owner(t->process, fresh->kind, fresh->device);
#ifdef LINUX_5_10
	fresh->context = instance_of(t->process, fresh->context);
#endif
	return true;
}

#endif
