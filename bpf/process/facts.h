/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_FACTS_H
#define GPU_GADGETS_PROCESS_FACTS_H

#include "process/rows.h"

/*
 * facts: what calls reveal about a process, such as its contexts, in tables whose keys begin with
 * the process. A tenant has at most three quarters of each. User space deletes the entries of processes
 * that have ended, for which they must be remembered, whether they have rows or not
 * (operators/decode/reap). Without quotas the tables are LRU, and those entries age out.
 *
 * An LRU table gives each processor room for up to 128 entries (kernel/bpf/bpf_lru_list.c): with
 * some tens of processors a table of thousands loses entries that are in use.
 */
#ifdef WITH_QUOTAS
#define FACT_MAP BPF_MAP_TYPE_HASH
#define FACT_MAP_FLAGS MAP_FLAGS_GROWING
/* Takes an entry for the current process in a table of so many. 0: there is no room. No function:
 * the stack is short where this is used. */
#define FACT_TAKE(process, table, entries) \
	(process_remember_current(process) && FACT_TAKE_KNOWN(table, entries))
/* The same for a process that is remembered. */
#define FACT_TAKE_KNOWN(table, entries) quota_take_own(table, (entries) - (entries) / 4)
#else
#define FACT_MAP BPF_MAP_TYPE_LRU_HASH
#define FACT_MAP_FLAGS 0
#define FACT_TAKE(process, table, entries) 1
#define FACT_TAKE_KNOWN(table, entries) 1
#endif

/* The same, with the update that makes the entry, which yields 0 or -errno. False: there is none. */
#define FACT_ADD(process, table, entries, update) \
	(FACT_TAKE(process, table, entries) && (!(update) || (QUOTA_GIVE(table), false)))
#define FACT_ADD_KNOWN(table, entries, update) \
	(FACT_TAKE_KNOWN(table, entries) && (!(update) || (QUOTA_GIVE(table), false)))

#endif
