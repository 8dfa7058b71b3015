/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_EXTENT_H
#define GPU_GADGETS_HIP_EXTENT_H

/*
 * extent: the size of what the runtime's forms allocate, which the driver API of CUDA does not
 * have: arrays by a hipChannelFormatDesc, and extents by value. Included by memory/enter.h.
 */

/* Entry: what such a call has besides a, b and c of the table. x86-64 only, as HIP. */
static __always_inline void extent_entered(struct pt_regs *ctx, struct inflight *call,
					   const struct memory_api *api,
					   const struct call_arguments *args)
{
	__u64 extent[3] = { args->value[2], args->value[3] };

	/* hipExtent has 24 bytes: it is on the stack, above the return address. */
	if ((api->flags & MEMORY_EXTENT) &&
	    bpf_probe_read_user(extent, sizeof(extent), (void *)(PT_REGS_SP(ctx) + 8)))
		drop(DROP_READ_ARGUMENT);
	call->width = extent[0];
	call->height = extent[1];
	call->depth = extent[2];
	call->array_flags = api->op == MEMORY_MIPMAP ? args->value[3] : 0;
	if (api->op == MEMORY_ALLOC_PITCH) { /* hipPitchedPtr: the pointer, the pitch */
		call->b = call->a + 8;
		call->c = extent[1] * extent[2];
	}
}

/* `bits` of x, y, z and w, as in hipChannelFormatDesc. */
static __always_inline void extent_shape(struct array_shape *shape, const struct inflight *call,
					 const __u32 *bits)
{
	shape->width = call->width;
	shape->height = call->height;
	shape->depth = call->depth;
	shape->format = 0x01; /* elements of a byte */
	shape->channels = (bits[0] + bits[1] + bits[2] + bits[3]) / 8;
}

#endif
