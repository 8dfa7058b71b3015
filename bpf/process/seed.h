/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_SEED_H
#define GPU_GADGETS_PROCESS_SEED_H

#include "program/linux_5_10.h"

/*
 * Returns what hashes of stacks and names begin with: a number that processes do not know, so that
 * none can make a stack or a name with the hash of another process's, which would be shown for that.
 * At first, two processors may choose two numbers: what is hashed then is there twice.
 */
static __u64 hash_seed_chosen;
static __always_inline __u64 hash_seed(void)
{
	__u64 seed = hash_seed_chosen;

	if (!seed) {
		seed = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32() | 1;
		hash_seed_chosen = seed;
	}
	return seed;
}

#endif
