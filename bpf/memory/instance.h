/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_INSTANCE_H
#define GPU_GADGETS_MEMORY_INSTANCE_H

#include "call/context.h"

/*
 * instance: which allocations ended with their context, on kernels where a
 * program cannot visit all of them (bpf_for_each_map_elem, 5.13). Rows and
 * allocations carry the context's instance. The destruction of a context ends its
 * instance, and a row of an ended one is read as freed implicitly, all of it: as
 * the row of a process that has ended.
 *
 * An instance is a number, as the driver uses a handle again. A call that may
 * destroy a context starts a new one when it is entered, since the handle may be
 * reused before our exit probe runs; where it fails, both stay: the
 * new one keeps the one before it as `before`.
 */
#ifndef MAX_INSTANCES
#define MAX_INSTANCES 8192
#endif
#define INSTANCE_DEPTH 8 /* destructions in a row that fail while others allocate */

struct instance_key {
	__u64 process;
	__u64 number;
};

struct instance {
	__u64 before; /* lives and ends with this one; 0: none */
	__u64 ended;
};

/*
 * Instance → whether it has ended. Written by the probes of destructions; entries
 * of ended processes are deleted by user space.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_INSTANCES);
	__type(key, struct instance_key);
	__type(value, struct instance);
} instances_by_number SEC(".maps");

/* Context → its instance, from the first attempt to destroy it on. As above; each has an entry there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_INSTANCES);
	__type(key, struct context_key);
	__type(value, __u64);
} instance_by_context SEC(".maps");

/* The instance of a context; 0 where there is no context. */
static __always_inline __u64 instance_of(__u64 process, __u64 handle)
{
	struct context_key key = { .process = process, .handle = handle };
	__u64 *known;

	if (!handle)
		return 0;
	known = bpf_map_lookup_elem(&instance_by_context, &key);
	return known ? *known : mix64(handle) | 1;
}

static __always_inline bool instance_ended(__u64 process, __u64 number)
{
	struct instance_key key = { .process = process, .number = number };
	struct instance *i = bpf_map_lookup_elem(&instances_by_number, &key);

	return i && i->ended;
}

/* Sets `ended` of an instance and of those before it. */
static __noinline int instance_end(__u64 process, __u64 number, __u64 ended)
{
	struct instance_key key = { .process = process, .number = number };

	for (int depth = 0; depth < INSTANCE_DEPTH && key.number; depth++) {
		struct instance *known = bpf_map_lookup_elem(&instances_by_number, &key);
		struct instance fresh = { .ended = ended };

		if (!known) {
			if (!FACT_ADD_KNOWN(QUOTA_INSTANCES, MAX_INSTANCES,
					    bpf_map_update_elem(&instances_by_number, &key, &fresh,
								BPF_ANY)))
				drop(DROP_CONTEXTS_FULL);
			return 0;
		}
		known->ended = ended;
		key.number = known->before;
	}
	return 0;
}

/* The call `serial` may destroy the context: its instance ends for the moment. */
static __noinline int instance_doom(__u64 process, __u64 handle, __u64 serial)
{
	struct context_key context = { .process = process, .handle = handle };
	struct instance_key key = { .process = process, .number = serial };
	struct instance fresh = { .before = instance_of(process, handle) };

	if (!process_remember_current(process)) /* or nothing would delete them */
		return 0;
	instance_end(process, fresh.before, 1);
	if (!FACT_ADD_KNOWN(QUOTA_INSTANCES, MAX_INSTANCES,
			    bpf_map_update_elem(&instances_by_number, &key, &fresh, BPF_ANY)) ||
	    bpf_map_update_elem(&instance_by_context, &context, &serial, BPF_ANY))
		drop(DROP_CONTEXTS_FULL);
	return 0;
}

/* That call has returned. */
static __noinline int instance_decide(__u64 process, __u64 serial, bool destroyed)
{
	struct instance_key key = { .process = process, .number = serial };
	struct instance *fresh = bpf_map_lookup_elem(&instances_by_number, &key);

	if (!fresh)
		return 0;
	if (destroyed)
		fresh->before = 0;
	else
		instance_end(process, fresh->before, 0);
	return 0;
}

#endif
