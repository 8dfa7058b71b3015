/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_CAPTURE_H
#define GPU_GADGETS_CALL_CAPTURE_H

#include "call/probes.h"
#include "stack/native.h"
#ifdef LINUX_5_10
#define BY_RULES 0
#define STACK_BEGINS 0
#else
#include "stack/probed.h"
#define BY_RULES (native_rules != NATIVE_RULES_OFF)
/* The flags of a stack before its Python frames are there. */
#define STACK_BEGINS (native_rules == NATIVE_RULES_ALL ? STACK_PYTHON_ENTRIES : 0)
#endif
#include "python/python.h"
#include "stack/store.h"
#include "call/thread.h"
#include "call/backward_pass.h"

/*
 * capture: the current thread's stack, remembered by its id: a thread often
 * allocates twice from the same place.
 */

/* Off: rows carry no stack, which shows what the rest costs. */
const volatile bool stacks = true;
GADGET_PARAM(stacks);

/* Off: work on autograd's threads has the stack of these threads alone (call/backward.h). */
const volatile bool backward = true;
GADGET_PARAM(backward);

/* Stores t->stack under its id, if it is new. 0: there was no room. */
static __noinline __u64 capture_store(struct thread *t, __u64 id)
{
	if (!t || !id)
		return 0;
	if (id == t->stack_id)
		return id;
	id = stack_store(&t->stack, id);
	if (id)
		t->stack_id = id;
	return id;
}

/*
 * A stack's id by way of memory, of which the verifier assumes nothing. In a register it knows of
 * the 0 with which capture_store() refuses, and Linux 6.1 took what follows that for all there is:
 * its state after further calls says nothing of the id any more. It removed the code for rows
 * with a stack, so that allocations went to the row without one and frees found none.
 */
static __always_inline __u64 capture_taken(struct thread *t, __u64 id)
{
	volatile __u64 *taken = &t->taken;

	*taken = id;
	return *taken;
}

#ifndef LINUX_5_10
/*
 * By the rules of their files: the native frames, once the Python frames are known. In a
 * function of its own, whose stack is not added to that of what comes after it.
 */
static __noinline int capture_by_rules(struct pt_regs *ctx, struct thread *t, __u64 function,
				       __u64 caller, __u64 sp)
{
	struct python_thread *python;

	if (!ctx || !t)
		return 0;
	python = t->stack.python_count ? python_here(0) : 0;
	unwind_by_rules(&t->stack, t->process, function, caller, sp, PT_REGS_FP(ctx),
			python ? python->runtime : 0);
	return 0;
}

/*
 * The callers beyond the thread's own Python frames: the native ones, by rules, and those of the
 * pass that autograd's thread works for.
 */
static __always_inline void capture_callers(struct pt_regs *ctx, struct thread *t, __u64 function,
					    __u64 caller, __u64 sp)
{
	if (backward)
		backward_look(t);
	if (native_rules == NATIVE_RULES_ALL) {
		if (backward && t->stack.python_count && backward_is_asked(t))
			t->stack.flags |= STACK_NATIVE_TO_END;
		capture_by_rules(ctx, t, function, caller, sp);
		runs_forget(&t->stack);
	}
	if (backward)
		backward_join(t);
	if (native_rules != NATIVE_RULES_WITHOUT_PYTHON)
		return;
	if (t->stack.python_count)
		native_called(&t->stack, function, caller);
	else
		capture_by_rules(ctx, t, function, caller, sp);
}
#endif

/*
 * The id of the stack of a call that returns with these registers; 0: it is not wanted.
 * `ip` is an address in the function that was called. The stack is not stored: the caller
 * has a row with that id already, or calls capture_store().
 */
static __always_inline __u64 unwind_stack(struct pt_regs *ctx, struct thread *t, __u64 ip,
					  bool may_sleep)
{
	if (!stacks)
		return 0;
	t->stack.flags = STACK_BEGINS;
	t->stack.python_count = 0;
	if (!BY_RULES)
		native_unwind(&t->stack, t->process, ip, PT_REGS_IP(ctx), PT_REGS_SP(ctx),
			      PT_REGS_FP(ctx));
	/* Losses are counted there; what could be read is the stack. */
#ifndef LINUX_5_10
	if (may_sleep)
		python_unwind_sleepable(&t->stack, t->process);
	else
#endif
		python_unwind(&t->stack, &t->fault, t->process);
#ifndef LINUX_5_10
	capture_callers(ctx, t, ip, PT_REGS_IP(ctx), PT_REGS_SP(ctx));
#endif
	return capture_taken(t, stack_hash(&t->stack));
}

/* The same, stored. 0 also where there was no room for it. */
static __always_inline __u64 take_stack(struct pt_regs *ctx, struct thread *t, __u64 ip,
					bool may_sleep)
{
	return capture_taken(t, capture_store(t, unwind_stack(ctx, t, ip, may_sleep)));
}

#ifndef LINUX_5_10
/* Return address of a function that has just been entered; 0: unreadable. */
static __always_inline __u64 entry_caller(struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	__u64 caller = 0;

	bpf_probe_read_user(&caller, sizeof(caller), (void *)PT_REGS_SP(ctx));
	return caller;
#else
	return NATIVE_ADDRESS(PT_REGS_RET(ctx));
#endif
}

/* The same at a function's entry, in a program that may sleep. */
static __always_inline __u64 take_entry_stack(struct pt_regs *ctx, struct thread *t)
{
	if (!stacks)
		return 0;
	t->stack.flags = STACK_BEGINS;
	t->stack.python_count = 0;
	if (!BY_RULES)
		native_unwind(&t->stack, t->process, PT_REGS_IP(ctx), entry_caller(ctx),
			      RETURNED_SP(PT_REGS_SP(ctx)), PT_REGS_FP(ctx));
	python_unwind_sleepable(&t->stack, t->process);
	capture_callers(ctx, t, PT_REGS_IP(ctx), entry_caller(ctx), RETURNED_SP(PT_REGS_SP(ctx)));
	return capture_taken(t, capture_store(t, stack_hash(&t->stack)));
}
#endif

#endif
