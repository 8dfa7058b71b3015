/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_ARGUMENTS_H
#define GPU_GADGETS_LAUNCH_ARGUMENTS_H

#include "call/arguments.h"
#ifdef VENDOR_HIP
#include "hip/arguments.h"
#else
#include "launch/cuda/arguments.h"
#endif

/*
 * arguments: reads the arguments of a call at its entry. A vendor's header says which calls have
 * more than six that matter, and what they mean.
 */
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

#endif
