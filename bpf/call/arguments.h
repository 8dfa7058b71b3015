/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_ARGUMENTS_H
#define GPU_GADGETS_CALL_ARGUMENTS_H

#include <bpf/bpf_tracing.h>

/*
 * arguments: where a function has its integers and pointers when it is entered, in the calling
 * conventions of x86-64 (System V) and arm64 (AAPCS64).
 */

/* X(argument from 0 on, its register). libbpf has the first five before its version 1.2. */
#if defined(__TARGET_ARCH_x86)
#define ARGUMENT_REGISTERS(X, ctx) \
	X(0, PT_REGS_PARM1(ctx)) \
	X(1, PT_REGS_PARM2(ctx)) \
	X(2, PT_REGS_PARM3(ctx)) \
	X(3, PT_REGS_PARM4(ctx)) \
	X(4, PT_REGS_PARM5(ctx)) \
	X(5, (ctx)->r9)
#define REGISTER_ARGUMENTS 6
/* The first of the others lies above the return address. */
#define STACK_ARGUMENTS_AT(ctx) (PT_REGS_SP(ctx) + 8)
#else
#define ARGUMENT_REGISTERS(X, ctx) \
	X(0, PT_REGS_PARM1(ctx)) \
	X(1, PT_REGS_PARM2(ctx)) \
	X(2, PT_REGS_PARM3(ctx)) \
	X(3, PT_REGS_PARM4(ctx)) \
	X(4, PT_REGS_PARM5(ctx)) \
	X(5, ((const struct user_pt_regs *)(ctx))->regs[5]) \
	X(6, ((const struct user_pt_regs *)(ctx))->regs[6]) \
	X(7, ((const struct user_pt_regs *)(ctx))->regs[7])
#define REGISTER_ARGUMENTS 8
#define STACK_ARGUMENTS_AT(ctx) PT_REGS_SP(ctx)
#endif

/* Reads those of the arguments from `first` to before `end` that are in registers: constants. */
static __always_inline void arguments_in_registers(struct pt_regs *ctx, __u64 *to, __u32 first,
						   __u32 end)
{
#define X(n, value) \
	if (n >= first && n < end) \
		to[n] = value;
	ARGUMENT_REGISTERS(X, ctx)
#undef X
}

#endif
