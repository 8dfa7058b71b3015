/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Numbers that are given out: device addresses, opaque handles; and which object an
 * address belongs to.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state.h"

/*
 * Device addresses are allocated here: reserved so that no other memory can have the same
 * address, and backed by memory from the first copy on. Size classes are powers of two
 * from 512 bytes (the smallest step of real device pointers); each has its free list,
 * last freed first, so that addresses are reused as soon as possible.
 */
#define MEMORY_RANGE (16ull << 40)
#define LOW_FROM 0x10000000ull
#define LOW_TO 0xf0000000ull
#define CLASSES 40

static struct {
	uint64_t from, next, to;
	bool real;
	struct object *free[CLASSES];
	/* All objects that ever were here, by address: one keeps its address for ever. */
	struct object **all;
	size_t count, room;
} range[2]; /* 0: 64-bit, 1: for the first ABI's 32-bit pointers */
static struct object *spare; /* objects without an address */

static int size_class(uint64_t size)
{
	int c = 0;
	while (512ull << c < size)
		c++;
	return c;
}

static void range_setup(void)
{
	void *at = mmap(NULL, MEMORY_RANGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	range[0].real = at != MAP_FAILED;
	if (!range[0].real) /* strict overcommit: addresses only */
		at = mmap(NULL, MEMORY_RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	/* Without the reservation (RLIMIT_AS) any range that is rarely used does. */
	range[0].from = range[0].next = at == MAP_FAILED ? 0x200000000000ull : (uint64_t)at;
	range[0].to = range[0].next + MEMORY_RANGE;
	range[1].from = range[1].next = LOW_FROM;
	range[1].to = LOW_TO;
	if (range[0].real) {
		/* A few bytes per tensor must not become 2 MiB each. */
		madvise(at, MEMORY_RANGE, MADV_NOHUGEPAGE);
		madvise(at, MEMORY_RANGE, MADV_DONTDUMP);
	}
}

struct object *object_new(void)
{
	struct object *o = spare;
	if (!o)
		return calloc(1, sizeof(*o));
	spare = o->next;
	return o;
}

void object_free(struct object *o)
{
	o->next = spare;
	spare = o;
}

static void note(int low, struct object *o)
{
	if (range[low].count == range[low].room) {
		range[low].room = range[low].room ? range[low].room * 2 : 1024;
		range[low].all = realloc(range[low].all, range[low].room * sizeof(*range[low].all));
		if (!range[low].all)
			abort();
	}
	range[low].all[range[low].count++] = o;
}

struct object *address_new(uint64_t size, bool low)
{
	int c = size_class(size);
	if (c >= CLASSES)
		return NULL;
	if (!range[low].to)
		range_setup();
	struct object *o = range[low].free[c];
	if (o) {
		range[low].free[c] = o->next;
		return o;
	}
	uint64_t step = 512ull << c;
	if (range[low].to - range[low].next < step || !(o = object_new()))
		return NULL;
	o->ptr = range[low].next;
	o->low = low;
	o->size_class = (uint8_t)c;
	range[low].next += step;
	note(low, o);
	return o;
}

void address_free(struct object *o)
{
	if (o->written)
		contents_drop(o->ptr, o->size);
	o->written = false;
	o->owner = NULL;
	o->pool = 0;
	o->next = range[o->low].free[o->size_class];
	range[o->low].free[o->size_class] = o;
}

bool in_device_range(uint64_t p)
{
	return range[0].real && p >= range[0].from && p < range[0].to;
}

struct object *memory_at(uint64_t p)
{
	int low = p < LOW_TO;
	size_t lo = 0, hi = range[low].count;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (range[low].all[mid]->ptr > p)
			hi = mid;
		else
			lo = mid + 1;
	}
	struct object *o = lo ? range[low].all[lo - 1] : NULL;
	return o && o->owner && p - o->ptr < o->size ? o : NULL;
}

/* -------------------------------------------------------------- pinned memory */

/* By address. Registered and allocated memory never overlap. */
static struct {
	struct object **all;
	size_t count, room;
} host;

/* The index of the first object that begins after the address. */
static size_t host_after(uint64_t p)
{
	size_t lo = 0, hi = host.count;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (host.all[mid]->ptr > p)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

struct object *host_at(uint64_t p)
{
	size_t i = host_after(p);
	return i && p - host.all[i - 1]->ptr < host.all[i - 1]->size ? host.all[i - 1] : NULL;
}

void host_note(struct object *o)
{
	size_t i = host_after(o->ptr);
	if (host.count == host.room) {
		host.room = host.room ? host.room * 2 : 64;
		host.all = realloc(host.all, host.room * sizeof(*host.all));
		if (!host.all)
			abort();
	}
	memmove(&host.all[i + 1], &host.all[i], (host.count - i) * sizeof(*host.all));
	host.all[i] = o;
	host.count++;
}

void host_forget(const struct object *o)
{
	size_t i = host_after(o->ptr);
	while (i && host.all[i - 1] != o)
		i--;
	if (!i)
		return;
	memmove(&host.all[i - 1], &host.all[i], (host.count - i) * sizeof(*host.all));
	host.count--;
}

/* -------------------------------------------------------------------- handles */

/* Handles look like heap addresses of the driver: 64 bytes apart. Contexts, arrays,
 * pools, streams and physical memory share them, so that a number is soon reused for
 * another kind of object. */
#define FIRST_HANDLE 0x5c0000000000ull
static struct {
	uint64_t next;
	uint64_t *free;
	size_t count, room;
} handles = {.next = FIRST_HANDLE};

uint64_t handle_new(void)
{
	if (handles.count)
		return handles.free[--handles.count];
	return handles.next += 64;
}

void handle_free(uint64_t handle)
{
	if (handles.count == handles.room) {
		handles.room = handles.room ? handles.room * 2 : 256;
		handles.free = realloc(handles.free, handles.room * sizeof(*handles.free));
		if (!handles.free)
			abort();
	}
	handles.free[handles.count++] = handle;
}

void addresses_reset(void)
{
	/* State inherited by a forked child is not touched: it is the parent's. */
	memset(range, 0, sizeof(range));
	memset(&host, 0, sizeof(host));
	spare = NULL;
	handles.next = FIRST_HANDLE;
	handles.count = 0;
}
