/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_DEVICE_H
#define GPU_GADGETS_HIP_DEVICE_H

#include "process/process.h"

/*
 * device: which device a thread of HIP uses before it has chosen one. HIP starts every thread
 * on device 0. A thread that is older than the gadget may have chosen another one, though: its
 * device is unknown, and requested (FACT_DEVICE), until it calls hipSetDevice or hipGetDevice.
 */

/* When the first thread was started that the gadget saw start; 0: none yet. */
__u64 threads_since_boot_ns;

static __always_inline void device_thread_started(struct task_struct *child)
{
	if (!threads_since_boot_ns)
		threads_since_boot_ns = child->start_boottime;
}

static __always_inline __s32 device_at_start(struct task_struct *task)
{
	__u64 since = threads_since_boot_ns;

	return since && TASK_READ(task, start_boottime) >= since ? 0 : -1;
}

#define THREAD_DEVICE(task) device_at_start(task)

/*
 * What changes the device, with the ops of launch/contexts.h: X(symbol, op, a, b). hip/apis.h
 * lists the same functions with those of memory/apis.h.
 */
#define CONTEXT_PROBED_CALLS(X) \
	X(hipSetDevice, CONTEXT_DEVICE_SET, 0, CALL_NONE) \
	X(hipCtxSetCurrent, CONTEXT_DEVICE_OF, 0, CALL_NONE) \
	X(hipCtxPushCurrent, CONTEXT_DEVICE_OF, 0, CALL_NONE) \
	X(hipCtxCreate, CONTEXT_RETAIN, 0, 2) \
	X(hipDevicePrimaryCtxRetain, CONTEXT_RETAIN, 0, 1)

#define CONTEXT_DEMAND_CALLS(X) X(hipGetDevice, CONTEXT_DEVICE, 0, CALL_NONE)

#endif
