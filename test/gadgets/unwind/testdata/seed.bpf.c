// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
/* Test-only: two processors need the seed of hashes at the same time. */
#include <vmlinux.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "process/seed.h"

/* How many programs have begun, how long the first one waited for the other, and the seeds that they
 * have. Read by the test. */
__u64 begun;
__u64 waited;
__u64 seeds[2];

#define MOST_TURNS 1000000 /* of seed_test.go, too */

static long wait_for_other(__u32 i, void *ctx)
{
	return *(volatile __u64 *)&begun >= 2;
}

SEC("raw_tp")
int seed_chosen(void *ctx)
{
	__u64 seed, turns;

	__sync_fetch_and_add(&begun, 1);
	turns = bpf_loop(MOST_TURNS, wait_for_other, 0, 0);
	seed = hash_seed();
	__sync_fetch_and_add(&waited, turns);
	seeds[bpf_get_smp_processor_id() & 1] = seed;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
