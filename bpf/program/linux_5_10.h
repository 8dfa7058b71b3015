/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROGRAM_LINUX_5_10_H
#define GPU_GADGETS_PROGRAM_LINUX_5_10_H

#include <bpf/bpf_core_read.h>

/*
 * linux_5_10: kernel features that the headers avoid when they are compiled with
 * -DLINUX_5_10, for kernels from 5.10 on whose uprobe programs may not sleep (6.0).
 * Without the flag nothing here changes the code.
 *
 *   missing before                       Linux   instead
 *   bpf_get_current_task_btf             5.11    reads of kernel memory
 *   task storage for uprobe programs     5.12    hash maps by thread id, per-CPU scratch
 *   atomics that return the old value    5.12    vmm_add() has a lock, row_alloc() reads
 *   pointers to global functions         5.12    they look up what they need
 *   bpf_for_each_map_elem                5.13    memory/instance.h, and user space
 *   bpf_get_attach_cookie                5.15    a program for each function
 *   bpf_loop                             5.17    LOOP
 *   bpf_find_vma                         5.17    stack/native.h keeps the immediate caller
 *   (the same)                           5.17    no rules: native_rules is off
 *   sleepable uprobe programs            6.0     a missing page is a drop
 *   hashes that grow when used           6.1     preallocated: tracing programs that
 *                                                allocate are a warning in the log
 *
 * process/span.h, which reads a task's structs in place, is not supported.
 *
 * In exchange, a uprobe program before 6.0 runs with preemption off
 * (__uprobe_perf_func(), up to 8c7dcb84e3b7), so that it owns per-CPU memory until it
 * ends. If a program is preempted after all, another unwind finds the scratch in use,
 * which is counted (DROP_SCRATCH).
 */
#ifdef LINUX_5_10

#define MAP_FLAGS_GROWING 0
#define GIVEN_POINTERS static __noinline

static __always_inline struct task_struct *task_current(void)
{
	return (struct task_struct *)bpf_get_current_task();
}

/* Reads a field of a task, or through one. */
#define TASK_READ(task, field) BPF_CORE_READ(task, field)

/*
 * A loop's body is a global function: it is verified once, by itself, whereas the
 * verifier would follow an inline body through each iteration. It gets its context from
 * `here`, because global functions take no pointers before 5.12. At most 65536
 * iterations, in blocks, because the verifier follows 8192 branches at a time.
 */
#define LOOP_BLOCK 256

#define LOOP_STEP_GLOBAL(name, context, argument, ...)                         \
	static __always_inline long name##_body(__u32 i, struct context *argument); \
	__noinline long name(__u32 i)                                         \
	{                                                                     \
		__VA_ARGS__;                                                  \
		return argument ? name##_body(i, argument) : 1;               \
	}                                                                     \
	__noinline long name##_block(__u32 from, __u32 turns)                 \
	{                                                                     \
		for (__u32 i = 0; i < LOOP_BLOCK; i++)                        \
			if (from + i >= turns || name(from + i))              \
				return 1;                                     \
		return 0;                                                     \
	}                                                                     \
	static __always_inline long name##_body(__u32 i, struct context *argument)

#define LOOP_STEP(name, context, argument, here)                               \
	LOOP_STEP_GLOBAL(name, context, argument, struct context *argument = here())

/* Per-CPU memory for a context, and `here` for it. */
#define LOOP_CONTEXT(context, here)                                           \
	struct {                                                              \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                      \
		__uint(max_entries, 1);                                       \
		__type(key, __u32);                                           \
		__type(value, struct context);                                \
	} context##_scratch SEC(".maps");                                     \
	static __always_inline struct context *here(void)                     \
	{                                                                     \
		__u32 zero = 0;                                               \
                                                                              \
		return bpf_map_lookup_elem(&context##_scratch, &zero);        \
	}

/* Runs a loop with the context s, on a per-CPU copy of it. */
#define LOOP_ON(turns, name, s, here)                                         \
	({                                                                    \
		__typeof__(s) *scratch_ = here();                             \
                                                                              \
		if (scratch_) {                                               \
			*scratch_ = s;                                        \
			LOOP(turns, name, scratch_);                          \
			s = *scratch_;                                        \
		}                                                             \
	})

/* The bound is a constant, because the verifier may not derive one that the compiler does. */
#define LOOP(turns, name, context)                                            \
	({                                                                    \
		__u32 turns_ = (turns);                                       \
                                                                              \
		(void)(context); /* the steps look it up */           \
		barrier_var(turns_);                                          \
		for (__u32 at_ = 0; at_ < LOOP_BLOCK * LOOP_BLOCK; at_ += LOOP_BLOCK) \
			if (name##_block(at_, turns_))                        \
				break;                                        \
	})

#else

#define MAP_FLAGS_GROWING BPF_F_NO_PREALLOC

/*
 * A global function with pointers among its parameters. The verifier follows it once, and
 * not from each call and each of the states there. It checks them for NULL.
 */
#define GIVEN_POINTERS __noinline

static __always_inline struct task_struct *task_current(void)
{
	return bpf_get_current_task_btf();
}

#define TASK_READ(task, field) ((task)->field)
#define LOOP_STEP(name, context, argument, here) \
	static long name(__u32 i, struct context *argument)
#define LOOP_CONTEXT(context, here)
#define LOOP_ON(turns, name, s, here) bpf_loop(turns, name, &s, 0)
#define LOOP(turns, name, context) bpf_loop(turns, name, context, 0)

#endif

#endif
