/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_SELECTION_H
#define GPU_GADGETS_PROCESS_SELECTION_H

#include "program/drops.h"

/*
 * selection: `--pid` keeps the named processes and their descendants. Probes are set on
 * the file, for every process that maps it, so a child is followed from its first
 * instruction; the selection is inherited at fork.
 */
#define MAX_SELECTED 16384

/* [0] is 1 while a selection is in force. Written by the attach operator. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} selection_in_force SEC(".maps");

/* tgid → 1. Written by the attach operator before it attaches, and at fork. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SELECTED);
	__type(key, __u32);
	__type(value, __u32);
} selected_by_tgid SEC(".maps");

static __always_inline bool selection_on(void)
{
	__u32 zero = 0;
	__u32 *on = bpf_map_lookup_elem(&selection_in_force, &zero);

	return on && *on;
}

static __always_inline bool selection_has(__u32 tgid)
{
	return !selection_on() || bpf_map_lookup_elem(&selected_by_tgid, &tgid);
}

static __always_inline void selection_inherit(__u32 parent, __u32 child)
{
	__u32 one = 1;

	if (parent == child || !selection_on() ||
	    !bpf_map_lookup_elem(&selected_by_tgid, &parent))
		return;
	if (bpf_map_update_elem(&selected_by_tgid, &child, &one, BPF_ANY))
		drop(DROP_SELECTION_FULL);
}

static __always_inline void selection_gone(__u32 tgid)
{
	if (selection_on())
		bpf_map_delete_elem(&selected_by_tgid, &tgid);
}

#endif
