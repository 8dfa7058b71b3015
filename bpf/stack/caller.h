/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_CALLER_H
#define GPU_GADGETS_STACK_CALLER_H

#include "stack/native.h"
#include "stack/rules.h"

/*
 * caller: one step of a walk (stack/unwind.h), from a frame whose rule is known to that of its
 * caller. What does not work is a flag of enum stack_flag.
 */

/*
 * Return addresses whose rules a thread keeps, in sets of two: a training step of PyTorch has some
 * hundreds in each thread. They are in two maps, as a thread's value has less than 8 KiB since Linux
 * 6.19 (kmalloc_nolock() in mm/slub.c): with the walk itself, and alone.
 */
#define UNWIND_KNOWN 256
#define UNWIND_KNOWN_MORE 332

/* Files whose mappings a thread keeps: a power of two. */
#define UNWIND_MODULES 16

/* Words of the stack that are read at once: a power of two. */
#define UNWIND_WINDOW 32

/* In a rule's kind: the code is the interpreter's. */
#define UNWIND_PYTHON 0x80

/* Whose stack is walked, a constant in each program: it says how memory is read. */
enum unwind_of {
	UNWIND_CALLER,	/* the current thread's, from the caller of a probed function on */
	UNWIND_STOPPED, /* the current thread's, from where an interrupt has stopped it */
	UNWIND_OTHER,	/* that of a thread that does not run; such a program may sleep */
};

/* A mapping, as the kernel found it when the process had changed its mappings so often. */
struct unwind_module {
	__u64 start, end;
	__u64 offset; /* of start in the file */
	struct unwind_page_key key;
	__u8 executable, is_file;
	__u8 python; /* it is the interpreter's */
	__u8 pad;
	__u32 mappings;
	__u32 number; /* of this file at this place; 0: none */
	__u32 pad2;
};

struct unwind_known {
	__u64 tag; /* the address, and in its upper bits a clock: see unwind_tag() */
	/* The lower halves: neither comes round again while the clock stands. */
	__u16 mappings;
	__u16 module; /* its number; 0: in no file */
	struct unwind_rule rule;
};

struct unwind_more {
	struct unwind_known known[UNWIND_KNOWN_MORE];
};

struct unwind {
	__u64 process;
	__u64 tag_clock;
	__u64 pc, sp, fp;
	__u64 lr;   /* arm64: the link register, where it is known; else 0 */
	__u64 slot; /* where pc was on the stack, as the kernel's return probes know it */
	__u32 mappings;
	__u8 kept;  /* whether rules may be kept */
	__u8 exact; /* pc is what was executed next; else where a call returns to */
	__u8 is_code;
	__u8 caller;   /* pc is the caller, which is in the stack already */
	__u8 leaf;     /* pc is where the thread was interrupted */
	__u64 runtime; /* address in the interpreter's data, if Python frames follow; else 0 */
	__u64 python_runtime; /* the one of which the next two are */
	__u64 python_inode;   /* 0: not known */
	__u32 python_device;
	__u32 sequence; /* the kernel's number of the mappings that u->mappings stands for */
	struct unwind_rule rule;
	__u32 made; /* modules so far */
	__u32 into; /* how far pc is behind what stands for it: see stack/sampled.h */
	__u32 tid;  /* of UNWIND_OTHER */
	/* See stack/runs.h, which alone uses what follows: */
	__u32 entry;   /* the lower half of the next run's address */
	__u16 run;     /* Python frames up to the end of the next run, */
	__u16 counted; /* of the last run that was passed, */
	__u16 last;    /* and of the outermost one; 0: the walk ends at the interpreter */
	__u8 before;   /* native frames up to the interpreter's first, plus 1; 0: it was not met */
	__u8 passed_last; /* 1: the outermost run was passed */
	__u8 seek;	  /* 1: a run was passed, and the next one is to be found */
	__u8 found;	  /* See stack/modules.h, which alone uses it */
	__u8 pad2[6];
	__u64 window_at;
	__u64 window[UNWIND_WINDOW]; /* the words from there on, unless that is 0 */
	__u64 node[32];		     /* of the tree of the mappings */
	struct unwind_module modules[UNWIND_MODULES];
	struct unwind_known known[UNWIND_KNOWN];
};

/* Reads the memory of the thread whose stack is walked. Not 0: unreadable. */
static __always_inline long unwind_read(void *to, __u32 bytes, __u64 at, struct task_struct *task,
					enum unwind_of of)
{
	if (of == UNWIND_OTHER)
		return bpf_copy_from_user_task(to, bytes, (void *)at, task, 0);
	return bpf_probe_read_user(to, bytes, (void *)at);
}

/* With the header of task storage, a power of two is not exceeded. */
_Static_assert(sizeof(struct unwind) <= (32 << 10) - 128, "memory is in powers of two");

/* A word of the stack, and with it those above, which are its callers'. Not 0: unreadable. */
static __always_inline long unwind_word(struct unwind *u, __u64 *word, __u64 at,
					struct task_struct *task, enum unwind_of of)
{
	__u64 i = (at - u->window_at) / 8;

	if (u->window_at && i < UNWIND_WINDOW && !(at & 7)) {
		*word = u->window[i & (UNWIND_WINDOW - 1)];
		return 0;
	}
	if (unwind_read(u->window, sizeof(u->window), at, task, of)) {
		u->window_at = 0; /* the stack ends sooner */
		return unwind_read(word, sizeof(*word), at, task, of);
	}
	u->window_at = at;
	*word = u->window[0];
	return 0;
}

/* To what a signal interrupted. The layouts are those of the kernel's struct rt_sigframe. */
static __always_inline __u32 unwind_signal(struct unwind *u, struct task_struct *task,
					   enum unwind_of of)
{
#if defined(__TARGET_ARCH_x86)
	/* uc_mcontext is 40 bytes into the ucontext; rbp, rbx, rdx, rax, rcx, rsp, rip */
	__u64 regs[7];

	if (unwind_read(regs, sizeof(regs), u->sp + 40 + 10 * 8, task, of))
		return STACK_NATIVE_UNREADABLE;
	u->fp = regs[0];
	u->sp = regs[5];
	u->pc = regs[6];
#else
	/* regs[0] is 312 bytes into the frame; x29, x30, sp, pc */
	__u64 regs[4];

	if (unwind_read(regs, sizeof(regs), u->sp + 312 + 29 * 8, task, of))
		return STACK_NATIVE_UNREADABLE;
	u->fp = regs[0];
	u->lr = NATIVE_ADDRESS(regs[1]);
	u->sp = regs[2];
	u->pc = regs[3];
#endif
	u->exact = true;
	return 0;
}

/* To the caller by the chain of frame pointers. */
static __always_inline __u32 unwind_frame(struct unwind *u, struct task_struct *task,
					  enum unwind_of of)
{
	__u64 frame[2];

	if (u->fp < u->sp || u->fp - u->sp > NATIVE_STACK_BYTES || u->fp & 7)
		return STACK_NATIVE_NO_RULES;
	if (unwind_read(frame, sizeof(frame), u->fp, task, of))
		return STACK_NATIVE_UNREADABLE;
	u->slot = u->fp + 8;
	u->sp = u->fp + sizeof(frame);
	u->fp = frame[0];
	u->pc = NATIVE_ADDRESS(frame[1]);
	return 0;
}

/* To the caller by u->rule, of a kind that says where the frame begins. */
static __always_inline __u32 unwind_apply(struct unwind *u, struct task_struct *task,
					  enum unwind_of of)
{
	struct unwind_rule *rule = &u->rule;
	__u64 cfa, base, at;

	base = rule->kind == UNWIND_FP || rule->kind == UNWIND_WORD_AT_FP ? u->fp : u->sp;
	if (rule->kind == UNWIND_PLT)
		cfa = base + 8 + ((u->pc & 15) >= (__u32)rule->cfa ? 8 : 0);
	else
		cfa = base + rule->cfa;
	if (rule->kind == UNWIND_WORD_AT_SP || rule->kind == UNWIND_WORD_AT_FP) {
		if (unwind_word(u, &cfa, cfa, task, of))
			return STACK_NATIVE_UNREADABLE;
		cfa += rule->add;
	}
	/* Callers lie above, except that of a function of arm64 without a frame. */
	if (cfa < u->sp || (cfa == u->sp && rule->ra) || cfa - u->sp > NATIVE_STACK_BYTES ||
	    cfa & 7)
		return STACK_NATIVE_BROKEN;
	/* First what is lower in memory: one read has both. */
	if (rule->saved == UNWIND_AT_CFA || rule->saved == UNWIND_AT_FP) {
		at = (rule->saved == UNWIND_AT_CFA ? cfa : u->fp) + rule->fp;
		if (unwind_word(u, &u->fp, at, task, of))
			return STACK_NATIVE_UNREADABLE;
	} else if (rule->saved == UNWIND_LOST) {
		u->fp = 0; /* no frame begins there: a rule that needs it cuts the stack */
	}
	if (rule->ra) {
		if (unwind_word(u, &u->pc, cfa + rule->ra, task, of))
			return STACK_NATIVE_UNREADABLE;
		u->pc = NATIVE_ADDRESS(u->pc);
	} else {
		if (!u->lr)
			return STACK_NATIVE_BROKEN;
		u->pc = u->lr;
	}
	u->lr = 0;
#if defined(__TARGET_ARCH_x86)
	u->slot = cfa - 8;
#else
	u->slot = cfa;
#endif
	u->sp = cfa;
	u->exact = false;
	return 0;
}

#endif
