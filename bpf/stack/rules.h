/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_RULES_H
#define GPU_GADGETS_STACK_RULES_H

#include "process/quota.h"
#include "program/ring.h"
#include "stack/native_rules.h"

/*
 * rules: how functions are left, as .eh_frame says it, for a walk of the stack without frame
 * pointers (stack/unwind.h). User space reads them (internal/elf/unwind) for pages of code that
 * a walk has met, and puts them here, by the file: processes share them.
 * Go mirror: internal/tracer/unwinder (wire.go), checked against BTF.
 */

/* How the caller's frame is found; Kind of internal/elf/unwind. */
enum unwind_kind {
	UNWIND_NONE,	   /* not known */
	UNWIND_SP,	   /* it begins (CFA) at the stack pointer + cfa */
	UNWIND_FP,	   /* at the frame pointer + cfa */
	UNWIND_WORD_AT_SP, /* at the word at the stack pointer + cfa, + add */
	UNWIND_WORD_AT_FP, /* at the word at the frame pointer + cfa, + add */
	UNWIND_PLT,    /* x86: at the stack pointer + 8, + 8 more from the cfa-th of 16 bytes on */
	UNWIND_SIGNAL, /* the registers of what a signal interrupted are on the stack */
	UNWIND_STOP,   /* nothing called this */
	UNWIND_FRAME,  /* by the frame pointer: the file has no rules */
	UNWIND_NOT_LOADED, /* never in a page */
};

/* Where the caller's frame pointer is. */
enum unwind_saved {
	UNWIND_SAME,   /* in its register */
	UNWIND_AT_CFA, /* fp bytes from where the frame begins */
	UNWIND_AT_FP,  /* fp bytes from the frame pointer */
	UNWIND_LOST,
};

struct unwind_rule {
	__u8 kind;  /* enum unwind_kind */
	__u8 saved; /* enum unwind_saved */
	__s16 add;
	__s32 cfa;
	__s16 fp;
	__s16 ra; /* where the return address is, from the CFA; 0: in its register */
};

/*
 * A page is 1 KiB of a file: 16 rules on average, and some hundreds where functions are tiny.
 * It has one part, or more where it has more rows or more different rules than fit.
 */
#define UNWIND_PAGE_BITS 10
#define UNWIND_ROWS 64
#define UNWIND_RULES 16
#define UNWIND_PARTS 8

/* In rule_of: a function begins there. */
#define UNWIND_BEGINS 0x80

/* What functions without rules, which are assembly, are aligned to at least: as 16 bytes are fetched at once. */
#define UNWIND_ALIGNED 16

/*
 * What a file is: inode and device, and its length and when it was changed, which are others when
 * it was rewritten.
 */
struct unwind_page_key {
	__u64 inode;
	__u64 bytes;
	__u32 device; /* as the kernel encodes it */
	__u32 page;   /* of the file, by offset */
	__u32 part;
	__u32 changed; /* UNWIND_CHANGED() of its ctime */
};

/* Instead of an inode: the code that the kernel maps into each process. All else of its key is 0. */
#define UNWIND_VDSO (~0ULL)

#define UNWIND_CHANGED(seconds, ns) ((__u32)(seconds) * 0x9e3779b1U + (__u32)(ns))

struct unwind_page {
	__u32 used; /* when, in units of 2^UNWIND_USED_BITS ns since boot */
	__u8 rows;  /* at least 1: of offset 0, or where the part begins */
	__u8 parts;
	__u16 starts[UNWIND_PARTS - 1]; /* of parts 1 and on: offset in the page */
	__u16 at[UNWIND_ROWS];		/* offset in the page from which on a rule holds */
	__u8 rule_of[UNWIND_ROWS];	/* which rule, and UNWIND_BEGINS */
	struct unwind_rule rules[UNWIND_RULES];
};

/* 1.07 s: how exactly it is known which page was used last. */
#define UNWIND_USED_BITS 30

/* As native_rules. */
const volatile __u8 native_page_shift = 12; /* of the kernel's pages */
const volatile __u8 gadget_var_native_page_shift = 12;

/*
 * Page → its rules. Written and deleted by user space, which bounds the memory; read by the
 * walk, which notes when.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1);
	__type(key, struct unwind_page_key);
	__type(value, struct unwind_page);
} unwind_pages SEC(".maps");

/* A page that a walk has met and that was not there. */
struct unwind_miss {
	struct unwind_page_key key;
	__u64 start;   /* of the mapping */
	__u64 address; /* in it */
	__u64 sp;      /* above it are the frames of the callers */
	__u32 tgid;
	__u32 pad;
};

/* Only what a global points to is described in the object's BTF. */
const struct unwind_miss *unwind_miss_layout __attribute__((unused));
const enum unwind_kind *unwind_kind_layout __attribute__((unused));

/* To user space. A miss that finds no room is one of the next stack, too. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, LEAST_RING); /* user space enlarges it */
} unwind_misses SEC(".maps");

/*
 * Pages in the ring: each is requested once. Written by the walk, deleted by user space when the
 * page is there, or is known to have no rules.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, 1);
	__type(key, struct unwind_page_key);
	__type(value, __u32);
} unwind_asked SEC(".maps");

/* A tenant's requests in a second: fewer than the ring has room for. Walks request a page of a stack
 * at a time; user space loads what else is likely on it. */
#define UNWIND_REQUESTS 1024

static __noinline void unwind_ask(const struct unwind_page_key *key, __u64 start, __u64 address,
				  __u64 sp, struct task_struct *task)
{
	static const __u32 one = 1; /* not on the stack, which is short here */
	struct unwind_miss *miss;

	if (bpf_map_lookup_elem(&unwind_asked, key) ||
	    !QUOTA_COUNT_OF(task, QUOTA_RULES, UNWIND_REQUESTS))
		return;
	if (bpf_map_update_elem(&unwind_asked, key, &one, BPF_NOEXIST))
		return; /* requested, or many are: another stack will */
	miss = bpf_ringbuf_reserve(&unwind_misses, sizeof(*miss), 0);
	if (!miss) {
		bpf_map_delete_elem(&unwind_asked, key);
		return;
	}
	miss->key = *key;
	miss->start = start;
	miss->address = address;
	miss->sp = sp;
	miss->tgid = task->tgid;
	miss->pad = 0;
	bpf_ringbuf_submit(miss, 0);
}

/* How far an offset in the page is behind the begin of its function, or of the part, if that is later. */
static __always_inline __u32 unwind_into(const struct unwind_page *page, __u32 row, __u32 off)
{
	__u32 i;

	for (i = 0; i < UNWIND_ROWS && row; i++, row--)
		if (page->rule_of[row & (UNWIND_ROWS - 1)] & UNWIND_BEGINS)
			break;
	return off - page->at[row & (UNWIND_ROWS - 1)];
}

/* The row that holds at an offset in the page; the first one begins there or before. `into`, if not
 * NULL, becomes unwind_into(). */
static __always_inline void unwind_search(const struct unwind_page *page, __u32 off,
					  struct unwind_rule *rule, __u32 *into)
{
	__u32 low = 0, high = page->rows, i;

	/* Of 64 rows. What user space wrote is not trusted to be in bounds. */
	for (i = 0; i < 6; i++) {
		__u32 middle = (low + high) / 2;

		if (page->at[middle & (UNWIND_ROWS - 1)] <= off)
			low = middle;
		else
			high = middle;
	}
	*rule = page->rules[page->rule_of[low & (UNWIND_ROWS - 1)] & (UNWIND_RULES - 1)];
	if (into)
		*into = unwind_into(page, low, off);
}

/* The rule at a place of a file. False: its page is not there, and key->part is its number. */
static __noinline bool unwind_find(struct unwind_page_key *key, __u64 offset,
				   struct unwind_rule *rule, __u32 *into)
{
	__u32 off = offset & ((1 << UNWIND_PAGE_BITS) - 1), now, i, part = 0;
	struct unwind_page *page;

	key->page = offset >> UNWIND_PAGE_BITS;
	key->part = 0;
	page = bpf_map_lookup_elem(&unwind_pages, key);
	if (!page)
		return false;
	now = bpf_ktime_get_boot_ns() >> UNWIND_USED_BITS;
	if (page->used != now)
		page->used = now;
	if (page->parts > 1) {
		for (i = 0; i < UNWIND_PARTS - 1; i++)
			if (i + 1 < page->parts && page->starts[i] <= off)
				part = i + 1;
		if (part) {
			key->part = part;
			page = bpf_map_lookup_elem(&unwind_pages, key);
			if (!page)
				return false;
			page->used = now;
		}
	}
	unwind_search(page, off, rule, into);
	return true;
}

#endif
