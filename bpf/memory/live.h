/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_LIVE_H
#define GPU_GADGETS_MEMORY_LIVE_H

#include "memory/rows.h"

/*
 * live: what every pointer and handle that is alive was allocated as, so
 * that a free from any thread finds its row.
 */
#ifndef MAX_LIVE
#define MAX_LIVE 262144
#endif
/* What one tenant may have: process/quota.h. */
#define LIVE_OWN (MAX_LIVE / 4 * 3)

/* Name spaces that may hold the same number for different things. */
enum live_space {
	SPACE_POINTER = 1, /* unified addresses: device, managed, pool, host */
	SPACE_REGISTERED,  /* host memory of cuMemHostRegister */
	SPACE_ARRAY,
	SPACE_VMM,    /* physical memory, by serial: see memory/vmm.h */
	SPACE_TENSOR, /* blocks of PyTorch's pool, in memory that is in another space */
	SPACE_CONTEXT,
};

struct live_key {
	__u64 process;
	__u64 pointer;
	__u32 space; /* enum live_space */
	__u32 pad;
};

/*
 * Pointer → its allocation. Written by the exit probes, taken out by the enter
 * probes of frees (before the driver can hand the number out again) and by user
 * space for processes that ended. Not preallocated: 50 MB if it were; size: a
 * caching allocator holds 10²–10⁴ pointers, a leak 10⁵.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_LIVE);
	__type(key, struct live_key);
	__type(value, struct live);
} live_by_pointer SEC(".maps");

static __always_inline __u32 live_space_of(const struct memory_api *api)
{
	if (api->flags & MEMORY_REGISTERED)
		return SPACE_REGISTERED;
	if (api->kind == KIND_ARRAY)
		return SPACE_ARRAY;
	if (api->kind == KIND_VMM)
		return SPACE_VMM;
	if (api->kind == KIND_CONTEXT)
		return SPACE_CONTEXT;
	return SPACE_POINTER;
}

/* Its context is being destroyed, or was. */
static __always_inline bool live_is_doomed(__u64 process, const struct live *l)
{
#ifdef LINUX_5_10
	return instance_ended(process, l->context);
#else
	return l->doom != 0;
#endif
}

/*
 * Replaces an allocation whose number was reused: the old one was
 * freed, and the probe of a context's end has not run yet, or the free was not
 * seen. 0 or -errno.
 */
static __noinline long live_replace(struct live_key *key, struct live *fresh)
{
	struct live *old = bpf_map_lookup_elem(&live_by_pointer, key);
	struct live was = {};
	int err;

	if (old)
		was = *old;
	err = bpf_map_update_elem(&live_by_pointer, key, fresh, BPF_ANY);
	if (err || !was.kind)
		return err;
	if (!was.foreign)
		row_free(key->process, &was, live_is_doomed(key->process, &was));
#ifndef LINUX_5_10
	if (was.kind == KIND_TENSOR && was.handle)
		request_freed(key->process, &was);
#endif
	if (!live_is_doomed(key->process, &was))
		drop(DROP_LIVE_REPLACED);
	return 0;
}

/* A new entry of the current tenant. 0 or -errno; -E2BIG: it has no room. */
static __always_inline int live_add(struct live_key *key, struct live *fresh)
{
	int err;

	if (!QUOTA_TAKE_OWN(QUOTA_LIVE, LIVE_OWN))
		return -E2BIG;
	err = bpf_map_update_elem(&live_by_pointer, key, fresh, BPF_NOEXIST);
	if (err)
		QUOTA_GIVE(QUOTA_LIVE);
	return err;
}

/*
 * Remembers an allocation and adds it to its row. One that cannot be remembered
 * goes to [unknown]: its free will not be recognised, and in its own row it
 * would look like a leak of that stack. So does one without references.
 */
static __always_inline void live_insert(struct live_key *key, struct live *fresh)
{
	struct span_row_key row_key;
	struct row *row;
	int err;

	row_key_of(&row_key, key->process, fresh);
	row = row_of_alloc(&row_key, fresh->size_bytes);
	if (!row)
		return;
	fresh->stack = row_key.row.stack;
	fresh->span = row_key.span;

	err = fresh->references ? live_add(key, fresh) : -E2BIG;
	if (err == -EEXIST)
		err = live_replace(key, fresh);
	if (err) {
		drop(DROP_LIVE_FULL);
		row_key.row.stack = 0;
		row_key.span = 0;
		row = row_of_alloc(&row_key, fresh->size_bytes);
		if (!row)
			return;
	}
	row_alloc(row, fresh->size_bytes, live_objects(fresh));
#ifndef LINUX_5_10
	if (nccl_owners && fresh->owner)
		owner_allocated(key->process, fresh->owner, OWNER_PLACE(fresh->kind, fresh->device),
				fresh->size_bytes);
#endif
}

/* Removes an allocation. False: another thread has. */
static __always_inline bool live_delete(struct live_key *key)
{
	if (bpf_map_delete_elem(&live_by_pointer, key))
		return false;
	QUOTA_GIVE(QUOTA_LIVE);
	return true;
}

/* Takes an allocation out of the map into `to`. False: not known. */
static __always_inline bool live_pop(struct live_key *key, struct live *to)
{
	struct live *l = bpf_map_lookup_elem(&live_by_pointer, key);

	if (!l)
		return false;
	*to = *l;
	/* Two threads freeing one pointer: only one of them removes it. */
	return live_delete(key);
}

/*
 * A context's destruction frees what it owns. Its allocations are marked when
 * the call is entered, since their numbers may be reused before our
 * exit probe runs; the exit probe then frees the marked ones, or unmarks them.
 */
enum doom_step {
	DOOM_MARK,
	DOOM_FREE,
	DOOM_CLEAR,
};

#ifdef LINUX_5_10
static __always_inline void live_doom(__u64 process, __u64 context, __u64 count, __u64 serial,
				      enum doom_step step)
{
	if (step == DOOM_MARK)
		instance_doom(process, context, serial);
	else
		instance_decide(process, serial, step == DOOM_FREE);
}

#else
struct doom {
	__u64 process;
	__u64 context;
#if MEMORY_HELD
	__u64 count;
#endif
	__u64 serial;
	__u64 step;
};

#if MEMORY_HELD
/* A call ends one context, or what is held in an address range. */
static __always_inline bool doom_concerns(const struct doom *d, const struct live *l)
{
	return l->context - d->context < d->count;
}
#else
static __always_inline bool doom_concerns(const struct doom *d, const struct live *l)
{
	return l->context == d->context;
}
#endif

static long doom_step(void *map, struct live_key *key, struct live *l, struct doom *d)
{
	struct live_key gone;
	struct span_row_key row;
	__u64 size, objects;
	__u32 owner;

	if (key->process != d->process || !doom_concerns(d, l))
		return 0;
	if (d->step == DOOM_MARK) {
		if (!l->doom)
			l->doom = d->serial;
		return 0;
	}
	if (l->doom != d->serial)
		return 0;
	if (d->step == DOOM_CLEAR) {
		l->doom = 0;
		return 0;
	}
	if (MEMORY_HELD && key->space == SPACE_VMM && l->references) {
		l->doom = 0; /* it is not held by the range alone */
		l->context = 0;
		return 0;
	}
	gone = *key;
	/* Not a copy of it all: the stack of programs is short here. */
	row_key_of(&row, gone.process, l);
	size = l->size_bytes;
	objects = live_objects(l);
	owner = l->owner;
	if (live_delete(&gone)) {
		row_free_bytes(&row, size, objects, true);
		if (MEMORY_HELD && gone.space == SPACE_VMM)
			row_hold(&row, -size);
		owner_free(gone.process, owner, &row, size, true);
	}
	return 0;
}

/* The allocations of `count` contexts from `context` on, which is 1 unless MEMORY_HELD. */
static __always_inline void live_doom(__u64 process, __u64 context, __u64 count, __u64 serial,
				      enum doom_step step)
{
	struct doom d = {
		.process = process,
		.context = context,
		.serial = serial,
		.step = step,
	};

#if MEMORY_HELD
	d.count = count;
#endif

	bpf_for_each_map_elem(&live_by_pointer, doom_step, &d, 0);
}

#endif

#endif
