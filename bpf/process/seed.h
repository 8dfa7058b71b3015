/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_SEED_H
#define GPU_GADGETS_PROCESS_SEED_H

#include "program/linux_5_10.h"

/*
 * seed: a number that processes do not know, with which hashes of stacks and names begin, so that no
 * process can make a stack or a name with the hash of another process's, which would be shown
 * instead. The first program that hashes chooses it; all others have the same one, or the first stacks
 * would be stored twice, and their rows be split.
 */
static __u64 hash_seed_chosen; /* 0: not yet */

#ifdef LINUX_5_10
/* 0 → the seed: cmpxchg came with 5.12. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hash_seeds SEC(".maps");
#endif

/* Stores `seed` if there is none. Returns the one that is stored. */
static __always_inline __u64 hash_seed_store(__u64 seed)
{
#ifdef LINUX_5_10
	__u32 key = 0;
	__u64 *first;

	bpf_map_update_elem(&hash_seeds, &key, &seed, BPF_NOEXIST);
	first = bpf_map_lookup_elem(&hash_seeds, &key);
	if (first)
		seed = *first;
	hash_seed_chosen = seed;
	return seed;
#else
	__u64 first = __sync_val_compare_and_swap(&hash_seed_chosen, 0, seed);

	return first ? first : seed;
#endif
}

static __always_inline __u64 hash_seed(void)
{
	__u64 seed = hash_seed_chosen;

	if (seed)
		return seed;
	return hash_seed_store((__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32() | 1);
}

#endif
