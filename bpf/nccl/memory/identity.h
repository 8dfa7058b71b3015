/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_MEMORY_IDENTITY_H
#define GPU_GADGETS_NCCL_MEMORY_IDENTITY_H

#include "process/process.h"

/*
 * identity: what all ranks of a communicator of NCCL have in common, from what they pass when
 * they make it; and the name that a program gave it.
 */
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_NAME_BYTES 32

/* ncclConfig_t, nccl.h: commName came with 2.27. */
#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_CONFIG_NAMED 22700

struct nccl_config_head {
	__u64 size;
	__u32 magic, version;
	__u32 ints[4];
	__u64 net_name;
	__u32 split_share, traffic_class;
	__u64 name;
};

static __always_inline __u64 identity_of(const __u64 id[16])
{
	__u64 hash = NCCL_UNIQUE_ID_BYTES;

	for (int i = 0; i < 16; i++) {
		hash = (hash ^ id[i]) * 0x9fb21c651e98df25ULL;
		hash ^= hash >> 32;
	}
	hash = mix64(hash);
	return hash ? hash : 1;
}

/* That of a child of a communicator: the `number`th, with what its ranks share, as its colour. */
static __always_inline __u64 identity_of_child(__u64 parent, __u64 number, __u64 shared)
{
	return parent ? mix64(parent ^ mix64(number << 32 ^ shared)) | 1 : 0;
}

#define NCCL_EXCLUDED 64

/*
 * Of the ranks that ncclCommShrink excludes, in any order. `before` is increased by the number
 * of those that precede rank `own`.
 */
static __noinline __u64 identity_of_excluded(__u64 list, __u32 count, __s32 own, __s32 *before)
{
	__u64 hash = 0;

	if (!before)
		return 0;
	for (__u32 i = 0; i < NCCL_EXCLUDED; i++) {
		__s32 rank = 0;

		if (i >= count || bpf_probe_read_user(&rank, 4, (void *)(list + 4 * i)))
			break;
		hash += mix64(rank + 1);
		if (rank < own)
			++*before;
	}
	return hash;
}

/* Address of the id at the entry of ncclCommInitRank*. It is passed by value: its 128
 * bytes are on the stack (x86-64) or in a copy whose address is passed (arm64). */
static __always_inline __u64 unique_id_at(struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return PT_REGS_SP(ctx) + 8; /* behind the return address */
#else
	return PT_REGS_PARM3(ctx);
#endif
}

/* The name that a program gave a communicator, into NCCL_NAME_BYTES; unchanged if none. */
static __always_inline void config_name(char *name, __u64 config)
{
	struct nccl_config_head head;

	if (!config || bpf_probe_read_user(&head, sizeof(head), (void *)config))
		return;
	if (head.magic == NCCL_CONFIG_MAGIC && head.version >= NCCL_CONFIG_NAMED &&
	    head.size >= sizeof(head) && head.name)
		bpf_probe_read_user_str(name, NCCL_NAME_BYTES, (void *)head.name);
}

#endif
