/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HOST_WCHAN_H
#define GPU_GADGETS_HOST_WCHAN_H

/*
 * wchan: the kernel function in which a sleeping task waits, as `ps -o wchan` shows it:
 * the innermost one outside of the scheduler.
 */
#define WCHAN_BYTES 32
#define WCHAN_DEPTH 8 /* of which three to five belong to the scheduler */

struct wchan_scratch {
	__u64 address[WCHAN_DEPTH];
};

/* Prefixes of the scheduler's functions. */
static __always_inline bool wchan_is_schedule(const char *name)
{
	return !bpf_strncmp(name, 8, "schedule") || !bpf_strncmp(name, 10, "__schedule") ||
	       !bpf_strncmp(name, 11, "io_schedule") || !bpf_strncmp(name, 16, "preempt_schedule") ||
	       !bpf_strncmp(name, 11, "__switch_to");
}

/*
 * Writes the function's name to `name`, WCHAN_BYTES of a map's value; empty if it is
 * unknown. The kernel formats the name, so its symbol table need not be read.
 */
static __always_inline void wchan(struct wchan_scratch *s, char *name, struct task_struct *task)
{
	static const char symbol[] = "%ps";
	long bytes = bpf_get_task_stack(task, s->address, sizeof(s->address), 0);

	for (__u32 i = 0; i < WCHAN_DEPTH; i++) {
		if (bytes < (long)((i + 1) * sizeof(s->address[0])))
			break;
		bpf_snprintf(name, WCHAN_BYTES, symbol, &s->address[i], sizeof(s->address[0]));
		if (!wchan_is_schedule(name))
			return;
	}
	name[0] = 0;
}

#endif
