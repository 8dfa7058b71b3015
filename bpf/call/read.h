/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_READ_H
#define GPU_GADGETS_CALL_READ_H

#include "program/drops.h"

/*
 * read: what an argument of a call points to. A program that may sleep faults it in;
 * what cannot be read is counted.
 */
static __always_inline bool call_read(void *to, __u32 bytes, __u64 address, bool may_sleep)
{
	if (!bpf_probe_read_user(to, bytes, (void *)address))
		return true;
#ifndef LINUX_5_10
	if (may_sleep && !bpf_copy_from_user(to, bytes, (void *)address))
		return true;
#endif
	drop(DROP_READ_ARGUMENT);
	return false;
}

#endif
