/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_EXTENT_H
#define GPU_GADGETS_MEMORY_EXTENT_H

#include "memory/inflight.h"

#include "call/arguments.h"

/*
 * extent: the size of an allocation in two or three dimensions, where the row has
 * MEMORY_EXTENT(). By value it lies on the stack on x86-64; a vendor with it is not on arm64.
 */
static __always_inline void extent_entered(struct pt_regs *ctx, struct inflight *call,
					   const struct memory_api *api,
					   const struct call_arguments *args)
{
	__u32 at = MEMORY_EXTENT_AT(api->flags);
	struct extent extent = {};

	if (at < REGISTER_ARGUMENTS) {
		extent.width = args->value[at & 7];
		extent.height = args->value[(at + 1) & 7];
	} else if (bpf_probe_read_user(&extent, 3 * sizeof(__u64),
				       (void *)STACK_ARGUMENTS_AT(ctx))) {
		drop(DROP_READ_ARGUMENT);
	}
	if (api->op == MEMORY_MIPMAP)
		extent.flags = args->value[(api->c + 1) & 7];
	call->extent[0] = extent;
	if (api->op == MEMORY_ALLOC_PITCH) {
		call->b = call->a + 8;
		call->c = extent.height * extent.depth;
	}
}

#endif
