/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_RESET_H
#define GPU_GADGETS_MEMORY_RESET_H

#include "memory/inflight.h"

#include "call/context.h"

/*
 * reset: what the reset of a device frees. Where the vendor's table has MEMORY_DEVICE_RESET, an
 * allocation belongs to a device, and not to a context.
 */

/* In the place of a context (struct live): a device, plus 1, which is no handle; 0: not known. */
static __always_inline __u64 device_owner(__s32 device)
{
	return device + 1;
}

/*
 * What owns an allocation of a thread: its current context. Of one that was made current before attach
 * only the device is known, from cuCtxGetDevice. It is taken for the primary context, as the CUDA
 * runtime uses no other: the reset of that context frees the allocation.
 */
static __always_inline __u64 context_owner(struct thread *t, __u64 current, __s32 device)
{
	return current || t->contexts ? current : device_owner(device);
}

/*
 * Managed and pinned memory belong to all devices of the process together. A reset frees what
 * belongs to its device alone (MemObjMap::Purge of ROCclr 6.4.3), which includes them where the
 * process has one.
 */
static __always_inline __u64 memory_owner(__u64 process, __u8 kind, __s32 device)
{
	if (kind != KIND_MANAGED && kind != KIND_HOST)
		return device_owner(device);
	return context_device(process, DEVICES_OF_PROCESS) == 1 ? device_owner(0) : 0;
}

#endif
