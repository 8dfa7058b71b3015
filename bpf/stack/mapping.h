/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_MAPPING_H
#define GPU_GADGETS_STACK_MAPPING_H

#include "stack/caller.h"

/*
 * mapping: what is mapped at an address of a process.
 *
 * bpf_find_vma() takes the lock of the mappings. In an interrupt it can be released by deferred work
 * only, of which a CPU has one, so the second call of an interrupt fails (mmap_unlock_work,
 * kernel/bpf/mmap_unlock_work.h). There the tree of the mappings is read as the kernel's own readers
 * do that have no lock: under RCU, which an interrupt implies. What is found counts if no mapping
 * was changed meanwhile, which mm->mm_lock_seq shows (Linux 6.4).
 */

/* mm->mm_lock_seq: an int, and a seqcount_t since 6.13 (db8f33d3b7698, "mm: convert
 * mm_lock_seq to a proper seqcount"), odd while the mappings are changed. */
struct seqcount___unwind {
	unsigned int sequence;
} __attribute__((preserve_access_index));

struct mm_struct___number {
	int mm_lock_seq;
} __attribute__((preserve_access_index));

struct mm_struct___counter {
	struct seqcount___unwind mm_lock_seq;
} __attribute__((preserve_access_index));

struct unwind_sequence {
	__u32 number;
	bool exists;
	bool odd;
};

static __always_inline struct unwind_sequence unwind_sequence(struct task_struct *task)
{
	void *mm = task->mm;
	struct mm_struct___number *number = mm;
	struct mm_struct___counter *counter = mm;
	struct unwind_sequence s = { .exists = true };

	if (bpf_core_field_exists(counter->mm_lock_seq.sequence)) {
		s.number = BPF_CORE_READ(counter, mm_lock_seq.sequence);
		s.odd = s.number & 1;
	} else if (bpf_core_field_exists(number->mm_lock_seq)) {
		s.number = BPF_CORE_READ(number, mm_lock_seq);
	} else {
		s.exists = false;
	}
	return s;
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

#define UNWIND_VM_EXEC 0x4 /* VM_EXEC of include/linux/mm.h */

static long unwind_vma(struct task_struct *task, struct vm_area_struct *vma,
		       struct unwind_module *p)
{
	struct file *file = vma->vm_file;

	p->executable = (vma->vm_flags & UNWIND_VM_EXEC) != 0;
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

/*
 * A node of a maple tree (include/linux/maple_tree.h, 64 bits): its parent, and then for a leaf or
 * a range 15 upper bounds and 16 entries, for a range with gaps 9 and 10, and these gaps.
 * The lower 8 bits of a pointer to a node are its type and flags.
 */
#define TREE_NODE_MASK (~255ULL)
#define TREE_TYPE(node) ((node) >> 3 & 15)
#define TREE_LEAF 1
#define TREE_RANGE 2
#define TREE_RANGE_WITH_GAPS 3
#define TREE_PIVOTS 15
#define TREE_PIVOTS_WITH_GAPS 9
#define TREE_END_WITH_GAPS 30 /* the word that begins with the index of the last entry */
#define TREE_END 31	      /* the same, where the last entry is not used */
/* 10 ** 5 mappings: more than vm.max_map_count, in full nodes. */
#define TREE_DEPTH 8

/* The entry for an address in u->node, whose type is known. A global function, which the verifier
 * follows once. */
__noinline __u64 unwind_tree_entry(struct unwind *u, __u32 type, __u64 at)
{
	__u32 with_gaps = type == TREE_RANGE_WITH_GAPS;
	__u32 low = 0, high, middle, i;
	__u32 slots = with_gaps ? 1 + TREE_PIVOTS_WITH_GAPS : 1 + TREE_PIVOTS;

	if (!u)
		return 0;
	if (with_gaps)
		high = u->node[TREE_END_WITH_GAPS] & 255;
	else
		high = u->node[TREE_PIVOTS] ? TREE_PIVOTS : u->node[TREE_END] & 255;
	if (high >= slots)
		return 0;
	/* The first of up to 15 bounds that is not below; if there is none, the entry behind them. */
	for (i = 0; i < 4 && low < high; i++) {
		middle = (low + high) / 2;
		if (u->node[(1 + middle) & 31] < at)
			low = middle + 1;
		else
			high = middle;
	}
	slots += low;
	barrier_var(slots);
	return u->node[slots & 31];
}

/* bpf_find_vma() for an interrupt: the current task's mapping at an address. Global, too. */
__noinline int unwind_vma_stopped(struct unwind *u, __u64 at, struct unwind_module *p)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct unwind_sequence before = unwind_sequence(task), after;
	struct vm_area_struct *vma;
	struct inode *inode;
	struct mm_struct *mm = task->mm;
	struct file *file;
	__u64 node = (__u64)BPF_CORE_READ(mm, mm_mt.ma_root);
	__u32 i, type;

	if (!u || !p)
		return -EBUSY;
	if ((node & 3) != 2 || node < 4096) /* as xa_is_node(): fewer than two mappings */
		return -EBUSY;
	for (i = 0; i < TREE_DEPTH; i++) {
		type = TREE_TYPE(node);
		if (type < TREE_LEAF || type > TREE_RANGE_WITH_GAPS ||
		    bpf_probe_read_kernel(u->node, sizeof(u->node),
					  (void *)(node & TREE_NODE_MASK)))
			return -EBUSY;
		node = unwind_tree_entry(u, type, at);
		if (type == TREE_LEAF)
			break;
	}
	vma = (void *)node;
	if (!node)
		return -ENOENT;
	p->start = BPF_CORE_READ(vma, vm_start);
	p->end = BPF_CORE_READ(vma, vm_end);
	if (BPF_CORE_READ(vma, vm_mm) != mm || at < p->start || at >= p->end)
		return -EBUSY;
	p->executable = (BPF_CORE_READ(vma, vm_flags) & UNWIND_VM_EXEC) != 0;
	file = BPF_CORE_READ(vma, vm_file);
	if (file) {
		inode = BPF_CORE_READ(file, f_inode);
		p->is_file = 1;
		p->offset = BPF_CORE_READ(vma, vm_pgoff) << native_page_shift;
		p->key.inode = BPF_CORE_READ(inode, i_ino);
		p->key.bytes = BPF_CORE_READ(inode, i_size);
		p->key.device = BPF_CORE_READ(inode, i_sb, s_dev);
		p->key.changed = unwind_changed(inode);
	}
	after = unwind_sequence(task);
	return after.number == before.number ? 0 : -EBUSY;
}

/* The mapping of a task at an address. 0, -ENOENT, or -EBUSY: they are being changed. */
static __always_inline long unwind_mapping(struct unwind *u, struct task_struct *task, __u64 at,
					   struct unwind_module *p, enum unwind_of of)
{
	if (of == UNWIND_STOPPED)
		return unwind_vma_stopped(u, at, p);
	return bpf_find_vma(task, at, unwind_vma, p, 0);
}

#endif
