/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_STORE_H
#define GPU_GADGETS_STACK_STORE_H

#include "stack/stack.h"
#include "process/quota.h"
#include "process/seed.h"

/*
 * store: a stack as an id under which its frames are in stacks_by_id. The
 * same frames give the same id.
 */
static __always_inline __u64 stack_hash_add(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9fb21c651e98df25ULL;
	return hash ^ (hash >> 32);
}

GIVEN_POINTERS __u64 stack_hash(struct stack *s)
{
	__u64 hash;
	__u32 i;

	if (!s)
		return 0;
	hash = hash_seed() ^ s->flags;
	for (i = 0; i < STACK_NATIVE_FRAMES; i++) {
		if (i >= s->native_count)
			break;
		hash = stack_hash_add(hash, s->native[i]);
	}
	for (i = 0; i < STACK_PYTHON_FRAMES; i++) {
		if (i >= s->python_count)
			break;
		hash = stack_hash_add(hash, s->python[i].symbol + s->python[i].line +
						    ((__u64)s->python[i].flags << 32));
	}
	hash = mix64(hash);
	return hash ? hash : 1;
}

/* Stores s, a map value, a stack of a task, if it is new. 0: there was no room. */
static __always_inline __u64 stack_store_of(struct task_struct *task, struct stack *s, __u64 id)
{
	/* Before 6.4 map calls return 32 bits, and as a long no error is negative
	 * (d7ba4cc900bf, "bpf: return long from bpf_map_ops funcs"). */
	int err;

	if (!bpf_map_lookup_elem(&stacks_by_id, &id)) {
		if (task ? !QUOTA_TAKE_OF(task, QUOTA_STACKS, MAX_STACKS)
			 : !QUOTA_TAKE(QUOTA_STACKS, MAX_STACKS)) {
			drop(DROP_STACKS_FULL);
			return 0;
		}
		err = bpf_map_update_elem(&stacks_by_id, &id, s, BPF_NOEXIST);
		if (err && err != -EEXIST) {
			drop(DROP_STACKS_FULL);
			return 0;
		}
	}
	return id;
}

/* The same for the current process. */
static __always_inline __u64 stack_store(struct stack *s, __u64 id)
{
	return stack_store_of(0, s, id);
}

#endif
