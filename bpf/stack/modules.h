/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_MODULES_H
#define GPU_GADGETS_STACK_MODULES_H

#include "stack/mapping.h"

/*
 * modules: which file an address of a walk (stack/unwind.h) belongs to.
 *
 * The newest ones are kept. One is looked up again when the process has changed any of its
 * mappings, which mm->mm_lock_seq shows (Linux 6.4; before, none is kept). So a library that was
 * unloaded and replaced by another gives no wrong frame.
 */

/*
 * Notes whose mappings these are, and whether they are those of before: u->mappings is another number
 * after each change, and for each process.
 */
static __always_inline void unwind_mappings(struct unwind *u, struct task_struct *task,
					    __u64 process)
{
	struct unwind_sequence now = unwind_sequence(task);

	u->kept = now.exists;
	if (u->process != process || u->sequence != now.number || now.odd)
		u->mappings++;
	if (u->process != process)
		u->python_runtime = u->python_inode = 0;
	u->process = process;
	u->sequence = now.number;
}

static __always_inline bool unwind_is_same(const struct unwind_module *a,
					   const struct unwind_module *b)
{
	return a->start == b->start && a->end == b->end && a->offset == b->offset &&
	       a->executable == b->executable && a->python == b->python &&
	       a->key.inode == b->key.inode && a->key.bytes == b->key.bytes &&
	       a->key.device == b->key.device && a->key.changed == b->key.changed;
}

/*
 * The file that an address belongs to, in *place, whose number is 0 if there is none or the kernel
 * keeps no count of changes. One look-up after a change serves all addresses of a mapping.
 */
static __always_inline long unwind_find_module(struct unwind *u, struct task_struct *task, __u64 at,
					       struct unwind_module *place, enum unwind_of of)
{
	struct unwind_module *m;
	__u32 n, i;
	long err;

	u->found = UNWIND_MODULES;
	for (i = 0; i < UNWIND_MODULES && u->kept; i++) {
		m = &u->modules[i];
		if (at - m->start < m->end - m->start) {
			u->found = i;
			break;
		}
	}
	/* Read back, it is any number to the verifier, which else follows all code from here on once
	 * for each module. */
	n = *(volatile __u8 *)&u->found;
	m = &u->modules[n & (UNWIND_MODULES - 1)];
	if (n < UNWIND_MODULES && m->mappings == u->mappings) {
		*place = *m;
		return 0;
	}
	err = unwind_mapping(u, task, at, place, of);
	if (!err && !place->is_file &&
	    place->start == (__u64)BPF_CORE_READ(task, mm, context.vdso)) {
		place->is_file = 1;
		place->key.inode = UNWIND_VDSO;
	}
	if (err || !place->is_file)
		return err;
	place->python = u->python_inode && place->key.inode == u->python_inode &&
			place->key.device == u->python_device;
	if (!u->kept)
		return 0;
	if (n >= UNWIND_MODULES)
		n = u->made;
	m = &u->modules[n & (UNWIND_MODULES - 1)];
	place->number = m->number;
	if (!unwind_is_same(m, place)) {
		/* A number is not used again while anything is kept of it. */
		if (!(__u16)++u->made)
			u->made++; /* as the lower half is that of no file */
		place->number = u->made;
	}
	place->mappings = u->mappings;
	*m = *place;
	return 0;
}

#endif
