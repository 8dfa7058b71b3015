/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_MEMORY_CALLS_H
#define GPU_GADGETS_NCCL_MEMORY_CALLS_H

#define NCCL_WITHOUT_IDS
#include "call/attach_point.h"
#include "call/read.h"
#include "call/thread.h"
#include "nccl/apis.h"
#include "nccl/memory/create.h"

/*
 * calls: which call of NCCL a thread is in, and which communicators that call is for. What the
 * thread allocates meanwhile, and what threads allocate that it starts meanwhile, belongs to
 * the communicator. If there are several, as in a group, it belongs to the one that is on the
 * allocation's device; if more than one may be, it is unknown.
 *
 * Only the outermost call of a thread counts.
 */

/* The attach cookie of a function of NCCL: its op, the index of its communicator, and a bit
 * that no function of the driver has. The lowest byte is also its place among what probes cost
 * (call/budget.h). */
#define OWNER_COOKIE 0x8000
#define OWNER_POINT(library, symbol, op, comm) \
	{ library, "nccl" #symbol, OWNER_COOKIE | (comm) << 8 | 128 | (op), \
	  ATTACH_EXIT | ATTACH_BESIDE },

#define X(symbol, op, comm, ...) OWNER_LIBRARIES(OWNER_POINT, symbol, op, comm)
const struct attach_point owner_attach_points[] ATTACH_POINTS = { OWNER_APIS(X) };
#undef X

/* A call on a communicator, which may be older than the attach. */
static __noinline int owner_used(struct owner_thread *n, __u32 phase, bool learn)
{
	struct owner *o;
	__u32 number;

	if (!n || !n->a)
		return 0;
	number = owner_number(n->process, n->a);
	if (!number && learn) {
		n->fresh.rank = n->fresh.size = -1;
		number = owner_new(n->process, &n->fresh);
		owner_has_handle(n->process, number, n->a);
	}
	o = owner_of(n->process, number);
	owner_add(n, number, phase, 0, o ? o->device : -1);
	return 0;
}

/* Entry of a function of NCCL, with its cookie. `device` is the thread's. */
static __noinline int owner_enter(struct pt_regs *ctx, __u32 cookie, __s32 device)
{
	struct task_struct *task = task_current();
	__u32 op = cookie & 127;
	struct owner_thread *n;
	__u64 process, sp;

	if (!ctx)
		return 0;
	n = owner_thread_of(task, true);
	if (!n) {
		drop(DROP_SCRATCH);
		return 0;
	}
	process = process_id_of(task);
	sp = PT_REGS_SP(ctx);
	if (n->process != process) {
		__builtin_memset(n, 0, sizeof(*n));
		if (!process_remember_current(process)) /* nothing would delete its communicators */
			return 0;
		n->process = process;
	}
	if (n->is_nccl || (n->sp && sp < n->sp))
		return 0; /* nested */
	if (!n->depth)
		n->count = 0;
	n->sp = sp;
	n->ip = PT_REGS_IP(ctx);
	n->op = op;
	n->a = owner_argument(ctx, cookie >> 8 & 15);
	__builtin_memset(&n->fresh, 0, sizeof(n->fresh));
	n->fresh.device = device;
	switch (op) {
	case NCCL_INIT_RANK:
#if defined(__TARGET_ARCH_x86)
		owner_rank(ctx, n, unique_id_at(ctx), 2, PT_REGS_PARM4(ctx));
#else
		owner_rank(ctx, n, unique_id_at(ctx), 3, PT_REGS_PARM5(ctx));
#endif
		break;
	case NCCL_INIT_SCALABLE:
		owner_rank(ctx, n, PT_REGS_PARM5(ctx), 2, owner_argument(ctx, 5));
		break;
	case NCCL_INIT_ALL:
		owner_all(n, PT_REGS_PARM1(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM2(ctx));
		break;
	case NCCL_SPLIT:
	case NCCL_SHRINK:
		owner_child(ctx, n, op == NCCL_SHRINK);
		break;
	case NCCL_GROUP_START:
	case NCCL_OP_GROUP_END:
	case NCCL_GROUP_SIMULATE_END:
	case NCCL_OP_MEM_ALLOC:
	case NCCL_OP_MEM_FREE:
		break;
	case NCCL_USER_RANK:
	case NCCL_USER_COUNT:
	case NCCL_USER_DEVICE:
		n->b = PT_REGS_PARM2(ctx);
		break;
	case NCCL_FINALIZE:
	case NCCL_DESTROY:
	case NCCL_ABORT:
		n->b = owner_number(process, n->a);
		owner_used(n, OWNER_OTHER, false);
		owner_ends(process, n->b, n->a,
			   op == NCCL_FINALIZE	? OWNER_FINALIZED
			   : op == NCCL_DESTROY ? OWNER_DESTROYED
						: OWNER_ABORTED);
		break;
	default:
		owner_used(n, op <= NCCL_OP_RECV ? OWNER_OPERATION : OWNER_OTHER,
			   op <= NCCL_OP_RECV);
	}
	return 0;
}

/* The communicators of a call, or of a group, have their handles. */
static __noinline int owner_made(struct owner_thread *n, bool may_sleep)
{
	__u64 handle;

	if (!n)
		return 0;
	for (__u32 i = 0; i < OWNER_CANDIDATES; i++) {
		if (i >= n->count || !n->candidate[i].address)
			continue;
		handle = 0;
		call_read(&handle, 8, n->candidate[i].address, may_sleep);
		n->candidate[i].address = 0;
		owner_has_handle(n->process, n->candidate[i].number, handle);
	}
	return 0;
}

/* What a call has answered about a communicator. */
static __noinline int owner_answered(struct owner_thread *n, bool may_sleep)
{
	struct owner *o;
	__s32 answer;

	if (!n || !call_read(&answer, 4, n->b, may_sleep))
		return 0;
	o = owner_of(n->process, owner_number(n->process, n->a));
	if (!o)
		return 0;
	if (n->op == NCCL_USER_RANK)
		o->rank = answer;
	else if (n->op == NCCL_USER_COUNT)
		o->size = answer;
	else
		o->device = answer;
	return 0;
}

enum owner_return {
	OWNER_RETURN_NONE, /* not of NCCL's function that the thread is in */
	OWNER_RETURNED,
	OWNER_WANTS_STACK, /* t->call was set for it; then owner_line() */
};

/* Whose return takes a stack: the first function of the driver's table allocates. */
#define OWNER_STACK_API 1

#define OWNER_RESULT_IN_PROGRESS 7 /* ncclInProgress */

/* A function has returned, in a thread that is in no call of the driver. */
static __noinline int owner_leave(struct pt_regs *ctx, struct thread *t, bool may_sleep)
{
	struct owner_thread *n;
	struct owner_handle_key key;
	__u64 number, sp;
	__u32 result;

	if (!ctx || !t)
		return OWNER_RETURN_NONE;
	n = owner_thread_of(task_current(), false);
	sp = PT_REGS_SP(ctx);
	if (!n || !n->sp || n->process != t->process || sp < RETURNED_SP(n->sp))
		return OWNER_RETURN_NONE;
	if (sp > RETURNED_SP(n->sp)) { /* longjmp */
		drop(DROP_INFLIGHT_STALE);
		n->sp = n->depth = 0;
		return OWNER_RETURN_NONE;
	}
	n->sp = 0;
	result = PT_REGS_RC(ctx);
	switch (n->op) {
	case NCCL_GROUP_START:
		n->depth += !result;
		return OWNER_RETURNED;
	case NCCL_OP_GROUP_END:
	case NCCL_GROUP_SIMULATE_END:
		if (n->depth && !--n->depth)
			owner_made(n, may_sleep);
		return OWNER_RETURNED;
	case NCCL_INIT_RANK:
	case NCCL_INIT_SCALABLE:
	case NCCL_INIT_ALL:
	case NCCL_SPLIT:
	case NCCL_SHRINK:
		if (!n->depth)
			owner_made(n, may_sleep);
		t->call.ip = n->ip;
		t->call.api = OWNER_STACK_API;
		n->wants_line = 1;
		return OWNER_WANTS_STACK;
	case NCCL_USER_RANK:
	case NCCL_USER_COUNT:
	case NCCL_USER_DEVICE:
		if (!result)
			owner_answered(n, may_sleep);
		return OWNER_RETURNED;
	case NCCL_DESTROY:
	case NCCL_ABORT:
		if (!result || result == OWNER_RESULT_IN_PROGRESS || !n->b)
			return OWNER_RETURNED;
		/* Refused: it is still there. */
		key.process = n->process;
		key.handle = n->a;
		number = n->b;
		bpf_map_update_elem(&owner_by_handle, &key, &number, BPF_NOEXIST);
		owner_ends(n->process, number, n->a, OWNER_ACTIVE);
		return OWNER_RETURNED;
	}
	return OWNER_RETURNED;
}

/* The thread's stack was taken. Whether it was wanted for the communicators that it has made. */
static __noinline bool owner_line(__u64 stack)
{
	struct owner_thread *n = owner_thread_of(task_current(), false);
	struct owner *o;

	if (!n || !n->wants_line)
		return false;
	n->wants_line = 0;
	for (__u32 i = 0; i < OWNER_CANDIDATES; i++) {
		if (i >= n->count || n->candidate[i].phase != OWNER_INIT)
			continue;
		o = owner_of(n->process, n->candidate[i].number);
		if (o && !o->stack)
			o->stack = stack;
	}
	return true;
}

/* A thread starts another one: while it is in a call of NCCL, that one is NCCL's. */
static __noinline int owner_started(struct owner_thread *n, struct owner_thread *child)
{
	if (!n || !child)
		return 0;
	*child = *n;
	child->sp = child->depth = 0;
	child->is_nccl = 1;
	return 0;
}

static __always_inline void owner_thread_started(struct task_struct *parent,
						 struct task_struct *child)
{
	struct owner_thread *n;

	if (!nccl_owners || parent->tgid != child->tgid)
		return;
	n = owner_thread_of(parent, false);
	if (!n || (!n->sp && !n->is_nccl) || n->process != process_id_of(parent))
		return;
	owner_started(n, owner_thread_of(child, true));
}

/* Whether NCCL named the current thread, which it may have started before attach. */
static __noinline bool owner_is_named(void)
{
	char name[16] = {};

	bpf_get_current_comm(name, sizeof(name));
	return name[0] == 'N' && name[1] == 'C' && name[2] == 'C' && name[3] == 'L' &&
	       name[4] == ' ';
}

/*
 * Who the current thread allocates for, on `device`, in a call with stack pointer `sp` at
 * entry: OWNER(), 0 if NCCL does not allocate.
 */
static __noinline __u32 owner_now(__u64 process, __u64 sp, __s32 device)
{
	struct owner_thread *n = owner_thread_of(task_current(), false);
	struct owner_candidate *c;
	__u32 found = 0, matches = 0, phase = OWNER_OTHER, only, other, may;

	if (!n || n->process != process || !(n->is_nccl || (n->sp && sp < n->sp)))
		return owner_is_named() ? OWNER(OWNER_THREAD, 0) : 0;
	if (n->op == NCCL_OP_MEM_ALLOC)
		return OWNER(OWNER_MEM_ALLOC, 0);
	only = n->count == 1;
	/* Without branches, both ways of which the verifier would follow 16 times. */
	for (__u32 i = 0; i < OWNER_CANDIDATES; i++) {
		c = &n->candidate[i];
		other = c->device ^ device;
		other = (other | -other) >> 31;
		may = (((other ^ 1) | (__u32)(c->device | device) >> 31 | only) &
		       (i - n->count) >> 31);
		barrier_var(may);
		matches += may;
		found |= c->number & -may;
	}
	if (n->count)
		phase = n->candidate[0].phase;
	if (n->is_nccl)
		phase = OWNER_THREAD;
	if (matches != 1 || n->count > OWNER_CANDIDATES)
		found = 0;
	return OWNER(phase, found & OWNER_MOST);
}

#endif
