/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_VMM_H
#define GPU_GADGETS_MEMORY_VMM_H

#include "memory/live.h"
#include "process/facts.h"

/*
 * vmm: virtual memory management (cuMemCreate …). Physical memory has a
 * handle and lives until the handle is released as often as it was obtained and
 * every mapping is gone. Its row is that of the stack that created it.
 */
/* PyTorch's expandable segments have a handle and a mapping for each 20 MiB: 8 × 268 GiB of a B300 are 109,773, and a
 * tenant has three quarters of these. Before Linux 6.1 they take their memory, 100 bytes each, in advance. */
#ifndef MAX_MAPPINGS
#ifdef LINUX_5_10
#define MAX_MAPPINGS 131072
#define MAX_HANDLES 131072
#else
#define MAX_MAPPINGS 262144
#define MAX_HANDLES 262144
#endif
#endif

/* One cuMemUnmap covers at most this many mappings, or granules of such as are not known; 2 TiB in 2 MiB
 * pages. */
#ifdef LINUX_5_10
#define MAX_UNMAP 65536
#else
#define MAX_UNMAP 1048576
#endif

struct handle_key {
	__u64 process;
	__u64 number;
	__u64 slot; /* below HANDLE_SLOTS */
};

struct handle {
	__u64 serial;	  /* live_by_pointer has it as {process, serial, SPACE_VMM} */
	__u64 references; /* created or retained, less released; 0: only mapped */
	__u64 known_ns;	  /* when this number was returned for it; CLOCK_BOOTTIME */
};

struct mapping_key {
	__u64 process;
	__u64 address;
};

struct mapping {
	__u64 size_bytes;
	__u64 serial; /* of the physical memory */
};

/*
 * Handle → physical memory. A map of its own because the driver may reuse the
 * number of a released handle while its memory is still mapped.
 *
 * It may also reuse a number before the exit probe of the call that freed its memory
 * runs. So that this probe cannot delete the entry of the new memory, each number has
 * HANDLE_SLOTS slots: an entry is made in a free one, only the program that freed its
 * memory deletes it, and the newest is the number's.
 */
#define HANDLE_SLOTS 4

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_HANDLES);
	__type(key, struct handle_key);
	__type(value, struct handle);
} handles_by_number SEC(".maps");

/*
 * Mapped address → the physical memory behind it. Written by the exit probes of
 * cuMemMap and cuMemUnmap, and by user space for processes that ended.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_MAPPINGS);
	__type(key, struct mapping_key);
	__type(value, struct mapping);
} mappings_by_address SEC(".maps");

#ifdef LINUX_5_10
/*
 * (process, what) → nothing, while a program of that process changes a count of
 * `what` and needs to know what it was before. Entered and deleted at once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct handle_key);
	__type(value, __u32);
} vmm_locks SEC(".maps");

/* Turns to wait for a program on another processor, which nothing interrupts. */
#define VMM_LOCK_TURNS 512

/* Adds to a count and returns what it was. */
static __noinline __u64 vmm_add(__u64 process, __u64 serial, __u64 *count, __u64 more)
{
	struct handle_key key = { .process = process, .number = serial };
	__u32 nothing = 0;
	__u64 was;

	for (int i = 0; i < VMM_LOCK_TURNS; i++)
		if (!bpf_map_update_elem(&vmm_locks, &key, &nothing, BPF_NOEXIST))
			break;
	was = *count;
	__sync_fetch_and_add(count, more);
	bpf_map_delete_elem(&vmm_locks, &key);
	return was;
}
#else
static __always_inline __u64 vmm_add(__u64 process, __u64 serial, __u64 *count, __u64 more)
{
	return __sync_fetch_and_add(count, more);
}
#endif

static __always_inline void vmm_key(struct live_key *key, __u64 process, __u64 serial)
{
	key->process = process;
	key->pointer = serial;
	key->space = SPACE_VMM;
	key->pad = 0;
}

/* The memory whose handle has this number; NULL when none is known. */
static __always_inline struct handle *vmm_handle(__u64 process, __u64 number)
{
	struct handle_key key = { .process = process, .number = number };
	struct handle *newest = NULL, *h;

	for (int i = 0; i < HANDLE_SLOTS; i++) {
		key.slot = i;
		h = bpf_map_lookup_elem(&handles_by_number, &key);
		if (h && (!newest || h->known_ns > newest->known_ns))
			newest = h;
	}
	return newest;
}

/* The entry of a number for the memory `serial`; sets key->slot. NULL: none. */
static __always_inline struct handle *vmm_handle_of(struct handle_key *key, __u64 serial)
{
	struct handle *h;

	for (int i = 0; i < HANDLE_SLOTS; i++) {
		key->slot = i;
		h = bpf_map_lookup_elem(&handles_by_number, key);
		if (h && h->serial == serial)
			return h;
	}
	return NULL;
}

/* Drops one reference to physical memory; the last one frees it. */
static __always_inline void vmm_unref(__u64 process, __u64 serial)
{
	union {
		struct live_key live;
		struct handle_key handle;
	} key; /* the stack of programs is short here */
	struct span_row_key row;
	struct live *l;
	__u64 size, number;
	__u32 owner;
	bool foreign, held = false;

	vmm_key(&key.live, process, serial);
	l = bpf_map_lookup_elem(&live_by_pointer, &key.live);
	if (!l)
		return; /* did not fit, which was counted */
	/* Not a copy of it all, for the same reason. */
	row_key_of(&row, process, l);
	size = l->size_bytes;
	number = l->handle;
	foreign = l->foreign;
	owner = l->owner;
#ifdef LINUX_5_10
	/* Several may see 0; one of them deletes it. */
	__sync_fetch_and_add(&l->references, -1);
	if (*(volatile __u32 *)&l->references || bpf_map_delete_elem(&live_by_pointer, &key.live))
		return;
#else
	if (__sync_fetch_and_add(&l->references, -1) != 1)
		return;
	held = MEMORY_HELD && !foreign && l->context;
	if (held)
		row_hold(&row, size);
	else
		live_delete(&key.live);
#endif
	/* The entry of its number. */
	key.handle.process = process;
	key.handle.number = number;
	key.handle.slot = 0;
	if (vmm_handle_of(&key.handle, serial) &&
	    !bpf_map_delete_elem(&handles_by_number, &key.handle))
		QUOTA_GIVE(QUOTA_HANDLES);
	if (held || foreign)
		return;
	row_free_bytes(&row, size, 1, false);
	owner_free(process, owner, &row, size, false);
}

/* A handle was created, or imported, for the memory `serial`. False: there is no room. */
static __always_inline bool vmm_handle_made(__u64 process, __u64 number, __u64 serial)
{
	struct handle_key key = { .process = process, .number = number };
	struct handle fresh = { .serial = serial,
				.references = 1,
				.known_ns = bpf_ktime_get_boot_ns() };
	__u64 oldest_ns = ~0ULL, oldest = 0;
	struct handle *h;

	if (!FACT_TAKE(process, QUOTA_HANDLES, MAX_HANDLES))
		return false;
	for (int i = 0; i < HANDLE_SLOTS; i++) {
		key.slot = i;
		if (!bpf_map_update_elem(&handles_by_number, &key, &fresh, BPF_NOEXIST))
			return true;
		h = bpf_map_lookup_elem(&handles_by_number, &key);
		if (h && h->known_ns < oldest_ns) {
			oldest_ns = h->known_ns;
			oldest = i;
		}
	}
	/* Each has memory without a handle that is still mapped; or the map is full. */
	QUOTA_GIVE(QUOTA_HANDLES);
	key.slot = oldest;
	return !bpf_map_update_elem(&handles_by_number, &key, &fresh, BPF_ANY);
}

/*
 * A handle was released. `serial` was read when the call was entered: by now
 * another thread may have been given the number for memory of its own.
 */
static __always_inline void vmm_release(__u64 process, __u64 number, __u64 serial)
{
	struct handle_key key = { .process = process, .number = number };
	struct handle *h = vmm_handle_of(&key, serial);

	/* The number stays known: a mapping may get the handle retained again. */
	if (h && vmm_add(process, serial, &h->references, -1) != 1)
		return;
	vmm_unref(process, serial);
}

/* Granularity of mappings, and how far a retained address may be from its start. */
#define VMM_GRANULE (2ULL << 20)
#define VMM_SEARCH 4096 /* 8 GiB */

struct mapping_search {
	__u64 process, address, at, serial;
};

LOOP_CONTEXT(mapping_search, mapping_here)

LOOP_STEP(mapping_step, mapping_search, s, mapping_here)
{
	struct mapping_key key = { .process = s->process, .address = s->at };
	struct mapping *m = bpf_map_lookup_elem(&mappings_by_address, &key);

	if (m) {
		if (s->address - s->at < m->size_bytes)
			s->serial = m->serial;
		return 1;
	}
	s->at = (s->at - 1) & ~(VMM_GRANULE - 1);
	return 0;
}

/*
 * cuMemRetainAllocationHandle is entered: pins the memory mapped at `address`,
 * which another thread may release and unmap before the call's exit probe runs.
 * Returns its serial; 0 when no mapping of it is known.
 */
static __always_inline __u64 vmm_pin(__u64 process, __u64 address)
{
	struct mapping_search s = { .process = process, .address = address, .at = address };
	struct live_key key;
	struct live *l;

	LOOP_ON(VMM_SEARCH, mapping_step, s, mapping_here);
	if (!s.serial)
		return 0;
	vmm_key(&key, process, s.serial);
	l = bpf_map_lookup_elem(&live_by_pointer, &key);
	if (!l)
		return 0;
	__sync_fetch_and_add(&l->references, 1);
	return s.serial;
}

/*
 * The retained handle's number is known. The pin becomes the handle's reference
 * if there was none any more, else it is dropped.
 */
static __always_inline void vmm_retain(__u64 process, __u64 number, __u64 serial)
{
	struct handle *h = vmm_handle(process, number);

	if (!serial)
		return; /* mapped before attach */
	if (h && h->serial == serial) {
		if (!vmm_add(process, serial, &h->references, 1))
			return;
	} else {
		if (vmm_handle_made(process, number, serial))
			return;
		drop(DROP_LIVE_FULL);
	}
	vmm_unref(process, serial);
}

static __always_inline void vmm_map(__u64 process, __u64 address, __u64 size, __u64 number)
{
	struct mapping_key key = { .process = process, .address = address };
	struct mapping m = { .size_bytes = size };
	struct handle *h = vmm_handle(process, number);
	struct live_key live_key;
	struct live *l;

	if (!h)
		return; /* created before attach: nothing of it is counted */
	m.serial = h->serial;
	vmm_key(&live_key, process, m.serial);
	l = bpf_map_lookup_elem(&live_by_pointer, &live_key);
	if (!l)
		return;
	__sync_fetch_and_add(&l->references, 1);
	if (MEMORY_HELD)
		l->context = address;
	if (bpf_map_update_elem(&mappings_by_address, &key, &m, BPF_EXIST) &&
	    !FACT_ADD(process, QUOTA_MAPPINGS, MAX_MAPPINGS,
		      bpf_map_update_elem(&mappings_by_address, &key, &m, BPF_ANY))) {
		drop(DROP_LIVE_FULL);
		vmm_unref(process, m.serial);
	}
}

/*
 * Removes the mapping at s->at, and continues behind it, up to s->address. Of one that was made before
 * attach the length is not known: the next one is searched for at each granule. s->serial: that was
 * counted.
 */
LOOP_STEP(unmap_step, mapping_search, s, mapping_here)
{
	struct mapping_key key = { .process = s->process, .address = s->at };
	struct mapping *found = bpf_map_lookup_elem(&mappings_by_address, &key);
	struct mapping m;

	if (!found) {
		if (!s->serial)
			drop(DROP_FREE_UNKNOWN);
		s->serial = 1;
		s->at = (s->at | (VMM_GRANULE - 1)) + 1;
		return s->at >= s->address;
	}
	m = *found;
	if (!bpf_map_delete_elem(&mappings_by_address, &key))
		QUOTA_GIVE(QUOTA_MAPPINGS);
	vmm_unref(s->process, m.serial);
	if (!m.size_bytes)
		return 1;
	s->at += m.size_bytes;
	return s->at >= s->address;
}

static __always_inline void vmm_unmap(__u64 process, __u64 address, __u64 size)
{
	struct mapping_search s = { .process = process, .at = address, .address = address + size };

	LOOP_ON(MAX_UNMAP, unmap_step, s, mapping_here);
}

#endif
