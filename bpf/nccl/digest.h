/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_DIGEST_H
#define GPU_GADGETS_NCCL_DIGEST_H

#include "nccl/communicators.h"

/*
 * digest: a hash of all collectives that a rank has issued to a communicator, in their order.
 * Ranks that have issued the same ones have the same digest at the same number. The ring shows
 * a collective that differs only as long as it is among the newest, and hosts issue hundreds
 * before they wait.
 */

/* Ranks may differ in the type of the elements, as long as these take the same bytes. */
static __always_inline __u64 digest_of_call(const struct nccl_operation *o)
{
	__u64 reduction = o->reduction;

	if (reduction > NCCL_REDUCTION_COUNT)
		reduction = NCCL_REDUCTION_COUNT; /* the numbers of custom ones differ by process */
	return o->op | reduction << 8 | (__u64)(__u32)o->peer << 16;
}

static __always_inline __u64 digest_mix(__u64 digest, __u64 value)
{
	digest = (digest ^ value) * 0x9e3779b97f4a7c15ULL;
	return digest ^ digest >> 29;
}

/* Counts a collective, and returns its number. */
static __always_inline __u64 collective_number(struct communicator *c,
					       const struct nccl_operation *o)
{
	__u64 number = ++c->collectives, digest = c->digest, index;

	c->digest_before = digest;
	digest = digest_mix(digest, digest_of_call(o));
	digest = digest_mix(digest, nccl_bytes(o->type, o->count));
	c->digest = digest;
	if (number % NCCL_DIGEST_EVERY)
		return number;
	/* One word, so that a reader never has the number of one and the digest of another. */
	index = number / NCCL_DIGEST_EVERY;
	digest = (digest & ~0xffffULL) | (index & 0xffff);
	asm volatile("%0 &= %1" : "+r"(index) : "i"(NCCL_DIGESTS - 1));
	c->digests[index] = digest;
	return number;
}

#endif
