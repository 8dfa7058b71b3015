/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_DEVICE_H
#define GPU_GADGETS_CALL_DEVICE_H

#include "call/vendor.h"
#include "process/process.h"

/*
 * device: which device a thread uses before it has chosen one: DEVICE_AT_START of the vendor. A
 * thread that is older than the gadget may have chosen another one, though: its device is
 * unknown, and requested (FACT_DEVICE), until it sets or queries it.
 */

/* When the first thread was started that the gadget saw start; 0: none yet. */
static __u64 threads_since_boot_ns;

static __always_inline void device_thread_started(struct task_struct *child)
{
	if (DEVICE_AT_START >= 0 && !threads_since_boot_ns)
		threads_since_boot_ns = child->start_boottime;
}

static __always_inline __s32 device_at_start(struct task_struct *task)
{
	__u64 since;

	if (DEVICE_AT_START < 0)
		return -1;
	since = threads_since_boot_ns;
	return since && TASK_READ(task, start_boottime) >= since ? DEVICE_AT_START : -1;
}

#endif
