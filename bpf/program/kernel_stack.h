/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROGRAM_KERNEL_STACK_H
#define GPU_GADGETS_PROGRAM_KERNEL_STACK_H

/*
 * kernel_stack: keeps a uprobe program on the kernel's own stack.
 *
 * From Linux 6.13 on, the verifier gives programs of BPF_PROG_TYPE_KPROBE a
 * private stack, one for each CPU (bpf_enable_priv_stack() in
 * kernel/bpf/verifier.c). That is right for kprobes, which run with preemption
 * off. A uprobe program may be preempted, and a sleepable one sleeps: another
 * thread then runs the same program on the same CPU and overwrites its stack,
 * spilled pointers included. On 7.2 that was a NULL dereference in the kernel
 * within a second of eight threads' calls.
 *
 * Programs with a tail call get no private stack, and the kernel looks for one before it
 * verifies any instruction (check_subprogs()). So an unreachable one is enough: the
 * branch is dead, is not verified, and is removed. It names no map, because sleepable
 * programs may not refer to a program array before 7.x.
 *
 * All functions of a program then share 512 bytes, as on older kernels.
 */
const volatile bool kernel_stack_never = false;

/* Must be in each uprobe program itself, not in a function that it calls. */
static __always_inline void kernel_stack_only(void)
{
#ifdef LINUX_5_10
	return; /* kernels up to 5.10 have no private stack */
#endif
	if (kernel_stack_never)
		asm volatile("call 12" /* BPF_FUNC_tail_call */
			     ::: "r0", "r1", "r2", "r3", "r4", "r5", "memory");
}

#endif
