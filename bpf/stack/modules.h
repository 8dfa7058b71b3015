/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_MODULES_H
#define GPU_GADGETS_STACK_MODULES_H

#include "stack/caller.h"

/*
 * modules: which file an address of a walk (stack/unwind.h) belongs to.
 *
 * The kernel finds the mapping (bpf_find_vma()), and a thread keeps the newest ones. One is looked up
 * again when the process has changed any of its mappings, which mm->mm_lock_seq shows (Linux 6.4;
 * before, none is kept). So a library that was unloaded and replaced by another gives no wrong frame.
 */

/* mm->mm_lock_seq: an int, and a seqcount_t since 6.13 (db8f33d3b7698, "mm: convert
 * mm_lock_seq to a proper seqcount"). */
struct seqcount___unwind {
	unsigned int sequence;
} __attribute__((preserve_access_index));

struct mm_struct___number {
	int mm_lock_seq;
} __attribute__((preserve_access_index));

struct mm_struct___counter {
	struct seqcount___unwind mm_lock_seq;
} __attribute__((preserve_access_index));

static __always_inline void unwind_mappings(struct unwind *u, struct task_struct *task)
{
	void *mm = task->mm;
	struct mm_struct___number *number = mm;
	struct mm_struct___counter *counter = mm;

	u->kept = true;
	if (bpf_core_field_exists(counter->mm_lock_seq.sequence))
		u->mappings = BPF_CORE_READ(counter, mm_lock_seq.sequence);
	else if (bpf_core_field_exists(number->mm_lock_seq))
		u->mappings = BPF_CORE_READ(number, mm_lock_seq);
	else
		u->kept = false;
}

/* inode->i_ctime: that until 6.6 (13bc24457850, "fs: rename i_ctime field to __i_ctime"), two
 * members since 6.11 (3aa63a569c64, "fs: switch timespec64 fields in inode to discrete
 * integers"). Since 6.13 a flag is in the bits above those of nanoseconds. */
struct inode___plain {
	struct timespec64 i_ctime;
} __attribute__((preserve_access_index));

struct inode___hidden {
	struct timespec64 __i_ctime;
} __attribute__((preserve_access_index));

struct inode___split {
	__s64 i_ctime_sec;
	__u32 i_ctime_nsec;
} __attribute__((preserve_access_index));

#define UNWIND_NS_MASK ((1U << 30) - 1)

static __always_inline __u32 unwind_changed(void *inode)
{
	struct inode___split *split = inode;
	struct inode___hidden *hidden = inode;
	struct inode___plain *plain = inode;

	if (bpf_core_field_exists(split->i_ctime_sec))
		return UNWIND_CHANGED(BPF_CORE_READ(split, i_ctime_sec),
				      BPF_CORE_READ(split, i_ctime_nsec) & UNWIND_NS_MASK);
	if (bpf_core_field_exists(hidden->__i_ctime))
		return UNWIND_CHANGED(BPF_CORE_READ(hidden, __i_ctime.tv_sec),
				      BPF_CORE_READ(hidden, __i_ctime.tv_nsec));
	return UNWIND_CHANGED(BPF_CORE_READ(plain, i_ctime.tv_sec),
			      BPF_CORE_READ(plain, i_ctime.tv_nsec));
}

static long unwind_vma(struct task_struct *task, struct vm_area_struct *vma,
		       struct unwind_module *p)
{
	struct file *file = vma->vm_file;

	p->executable = (vma->vm_flags & 0x4 /* VM_EXEC */) != 0;
	p->start = vma->vm_start;
	p->end = vma->vm_end;
	if (!file)
		return 0;
	p->is_file = 1;
	p->offset = vma->vm_pgoff << native_page_shift;
	p->key.inode = file->f_inode->i_ino;
	p->key.bytes = file->f_inode->i_size;
	p->key.device = file->f_inode->i_sb->s_dev;
	p->key.changed = unwind_changed(file->f_inode);
	return 0;
}

static __always_inline bool unwind_is_same(const struct unwind_module *a,
					   const struct unwind_module *b)
{
	return a->start == b->start && a->end == b->end && a->offset == b->offset &&
	       a->executable == b->executable && a->key.inode == b->key.inode &&
	       a->key.bytes == b->key.bytes && a->key.device == b->key.device &&
	       a->key.changed == b->key.changed;
}

/*
 * The file that an address belongs to, in *place, whose number is 0 if there is none or the kernel
 * keeps no count of changes. One look-up after a change serves all addresses of a mapping.
 */
static __always_inline long unwind_find_module(struct unwind *u, struct task_struct *task, __u64 at,
					       struct unwind_module *place)
{
	struct unwind_module *m = 0;
	__u32 i;
	long err;

	for (i = 0; i < UNWIND_MODULES && u->kept; i++) {
		m = &u->modules[i];
		if (at - m->start < m->end - m->start)
			break;
		m = 0;
	}
	if (m && m->mappings == u->mappings) {
		*place = *m;
		return 0;
	}
	err = bpf_find_vma(task, at, unwind_vma, place, 0);
	if (err || !place->is_file || !u->kept)
		return err;
	if (!m)
		m = &u->modules[u->made & (UNWIND_MODULES - 1)];
	place->number = m->number;
	if (!unwind_is_same(m, place)) {
		/* A number is not used again while anything is kept of it. */
		place->number = ++u->made;
	}
	place->mappings = u->mappings;
	*m = *place;
	return 0;
}

#endif
