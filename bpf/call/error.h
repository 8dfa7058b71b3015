/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_ERROR_H
#define GPU_GADGETS_CALL_ERROR_H

#include "call/vendor.h"

/*
 * error: results of calls as errors with a name: enum driver_error of the vendor's table, in
 * which a library above the driver has its own statuses behind a number, ERRORS_OF_<library>.
 * Of one library an older version had other numbers for the same names.
 */
#include VENDOR_TABLE(error.h)

#ifdef RENUMBERED_LIBRARY
#define RENUMBERED_SLOTS 16
static const __u16 renumbered_statuses[RENUMBERED_SLOTS] = RENUMBERED_STATUSES;
#endif

/* A status of a library as an error. */
static __always_inline enum driver_error error_of_library(__u32 library, __s32 status)
{
	__u32 same = 0;

	if (!status)
		return 0;
#ifdef RENUMBERED_LIBRARY
	if (library == RENUMBERED_LIBRARY && status > 0 && status < RENUMBERED_SLOTS)
		same = renumbered_statuses[status & (RENUMBERED_SLOTS - 1)];
#endif
	return (enum driver_error)(library + (same ?: status));
}

#endif
