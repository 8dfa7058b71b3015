/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state.h"

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER};
/* initial-exec: no call to __tls_get_addr on each driver call. The loader keeps
 * about 1.6 KiB of static TLS for libraries that are opened later. */
__thread struct thread thread __attribute__((tls_model("initial-exec")));

/* ------------------------------------------------------------------ numbers */

/* Open addressing, linear probing; at most half full. */
struct slot {
	uint64_t number;
	void *value; /* NULL: free */
	uint8_t space;
};
static struct {
	struct slot *slots;
	uint64_t mask, count;
} table;

static uint64_t home(enum space space, uint64_t number)
{
	uint64_t h = (number ^ (uint64_t)space << 56) * 0x9e3779b97f4a7c15ull; /* 2^64 / φ */
	return (h ^ h >> 29) & table.mask;
}

void *find(enum space space, uint64_t number)
{
	if (!table.slots)
		return NULL;
	for (uint64_t i = home(space, number);; i = (i + 1) & table.mask) {
		struct slot *s = &table.slots[i];
		if (!s->value || (s->number == number && s->space == space))
			return s->value;
	}
}

static void place(struct slot s)
{
	uint64_t i = home(s.space, s.number);
	while (table.slots[i].value)
		i = (i + 1) & table.mask;
	table.slots[i] = s;
}

void insert(enum space space, uint64_t number, void *value)
{
	if (!table.slots || table.count * 2 >= table.mask) {
		struct slot *old = table.slots;
		uint64_t n = old ? table.mask + 1 : 0;
		table.mask = n ? n * 2 - 1 : 1023;
		table.slots = calloc(table.mask + 1, sizeof(*table.slots));
		if (!table.slots)
			abort(); /* a test driver without memory cannot report anything */
		for (uint64_t i = 0; i < n; i++)
			if (old[i].value)
				place(old[i]);
		free(old);
	}
	place((struct slot){number, value, (uint8_t)space});
	table.count++;
}

void forget(enum space space, uint64_t number)
{
	uint64_t i = home(space, number);
	while (table.slots[i].number != number || table.slots[i].space != space ||
	       !table.slots[i].value)
		i = (i + 1) & table.mask;
	/* Close the gap, so that no tombstones are needed: an entry may move
	 * back to i unless its home lies after i on the way to it. */
	for (uint64_t j = (i + 1) & table.mask; table.slots[j].value; j = (j + 1) & table.mask) {
		uint64_t from = home(table.slots[j].space, table.slots[j].number);
		if (((j - from) & table.mask) >= ((j - i) & table.mask)) {
			table.slots[i] = table.slots[j];
			i = j;
		}
	}
	table.slots[i].value = NULL;
	table.count--;
}

/* -------------------------------------------------------------- call, record */

CUresult begin(struct call *c, unsigned api)
{
	*c = (struct call){.api = thread.outer_api ? thread.outer_api : api, .device = -1};
	pthread_mutex_lock(&sim.lock);
#ifdef VENDOR_HIP
	device_begin();
#endif
	if (!sim.initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	/* The outer call of a nested one has been counted already. */
	if (sim.fail_every && !thread.outer_api && ++sim.calls % sim.fail_every == 0) {
		c->injected = true;
		return CUDA_ERROR_UNKNOWN;
	}
	return CUDA_SUCCESS;
}

static void write_record(struct call *c, struct journal_record *r)
{
	r->seq = ++sim.seq;
	if (!c->recorded) {
		c->seq = r->seq;
		r->flags |= JOURNAL_FIRST;
	}
	c->recorded = true;
	if (!journal_on())
		return;
	if (!thread.tid)
		thread.tid = (uint32_t)syscall(SYS_gettid);
	if (c->injected)
		r->flags |= JOURNAL_INJECTED;
	if (thread.outer_api)
		r->flags |= JOURNAL_NESTED;
	r->tag = thread.tag;
	r->tid = thread.tid;
	r->api = (uint16_t)c->api;
	journal_write(r);
}

void record(struct call *c, enum journal_type type, const struct object *o)
{
	struct journal_record r = {
		.type = (uint8_t)type,
		.ptr = o->ptr,
		.size = o->size,
		.context = o->owner ? o->owner->handle : 0,
		.alloc_seq = type == JOURNAL_ALLOC ? 0 : o->alloc_seq,
		.cause = type == JOURNAL_IMPLICIT ? c->seq : 0,
		.device = o->device,
		.kind = o->kind,
	};
	write_record(c, &r);
}

CUresult end(struct call *c, CUresult result)
{
	static const uint8_t kinds[] = {0,
#define X(symbol, op, kind, flags, a, b, c) kind,
		MEMORY_APIS(X)
#undef X
	};
	if (!c->recorded) {
		struct journal_record r = {
			.type = JOURNAL_CALL,
			.result = result,
			.ptr = c->ptr,
			.size = c->size,
			.device = c->device,
			.kind = kinds[c->api],
		};
		if (c->device < 0) {
			CUresult why;
			struct context *ctx = current(&why);
			if (ctx)
				r.device = ctx->device;
		}
		write_record(c, &r);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult end_work(struct call *c, const struct work *w, CUresult result)
{
	struct journal_record r = {
		.type = JOURNAL_WORK,
		.result = result,
		.ptr = w->function,
		.size = w->bytes,
		.cause = w->name,
		.alloc_seq = w->nodes,
		.device = -1,
		.direction = w->direction,
		.captured = w->captured,
		.shared_bytes = w->shared_bytes,
		.stream = w->stream,
		.start_ns = w->start_ns,
	};
	CUresult why;
	struct context *ctx = w->context ? find(SPACE_CONTEXT, w->context) : current(&why);
	if (ctx)
		r.device = ctx->device;
	memcpy(r.grid, w->grid, sizeof(r.grid));
	memcpy(r.block, w->block, sizeof(r.block));
	write_record(c, &r);
	if (result == CUDA_SUCCESS)
		observer_notify(w, r.device);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* ------------------------------------------------------------------- objects */

/* Managed memory may exceed the devices (it is paged): 1 TiB in all. */
#define MANAGED_CAPACITY (1ull << 40)

bool fits(enum alloc_kind kind, int device, uint64_t size)
{
	if (kind == KIND_MANAGED)
		return size <= MANAGED_CAPACITY - sim.managed;
	if (kind == KIND_HOST || device < 0)
		return true; /* the kernel refuses by itself */
	return size <= sim.capacity - sim.used[device];
}

void account(enum alloc_kind kind, int device, uint64_t size, bool more)
{
	uint64_t *sum = kind == KIND_MANAGED ? &sim.managed
			: kind == KIND_HOST || device < 0 ? NULL : &sim.used[device];
	if (sum)
		*sum += more ? size : -size;
}

static void own(struct call *c, struct object *o, enum space space, enum alloc_kind kind,
		uint64_t size, int device, struct context *owner)
{
	o->space = (uint8_t)space;
	o->kind = (uint8_t)kind;
	o->size = size;
	o->device = device;
	o->owner = owner;
	o->next = &owner->objects;
	o->prev = owner->objects.prev;
	o->prev->next = o->next->prev = o;
	account(kind, device, size, true);
	insert(space, o->ptr, o);
	record(c, JOURNAL_ALLOC, o);
	o->alloc_seq = sim.seq;
}

/* The common checks of an allocation of `size` bytes. */
static struct context *admit(struct call *c, enum alloc_kind kind, uint64_t size, int *device,
			     CUresult *why)
{
	struct context *owner = current(why);
	if (!owner)
		return NULL;
	if (*device < 0)
		*device = owner->device;
	c->device = *device;
	c->size = size;
	*why = CUDA_SUCCESS;
	if (size == 0 && kind != KIND_ARRAY) /* memory may be mapped to an array later */
		*why = CUDA_ERROR_INVALID_VALUE;
	else if (!fits(kind, *device, size))
		*why = CUDA_ERROR_OUT_OF_MEMORY;
	return *why ? NULL : owner;
}

CUresult alloc_memory(struct call *c, enum alloc_kind kind, uint64_t size, int device, bool low,
		      uint64_t *out)
{
	CUresult why;
#ifdef VENDOR_HIP
	if (!size) { /* HIP succeeds, without memory */
		*out = 0;
		return CUDA_SUCCESS;
	}
#endif
	/* Called by another entry: the size is the caller's. */
	if (thread.outer_api)
		kind = thread.outer_kind;
	struct context *owner = admit(c, kind, size, &device, &why);
	if (!owner)
		return why;
	struct object *o = address_new(size, low);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	own(c, o, SPACE_MEMORY, kind, size, device, owner);
	*out = o->ptr;
	return CUDA_SUCCESS;
}

CUresult alloc_object(struct call *c, enum space space, uint64_t number, uint64_t size, bool mipmap)
{
	enum alloc_kind kind = space == SPACE_ARRAY ? KIND_ARRAY : KIND_HOST;
	CUresult why;
	int device = -1;
	struct context *owner = admit(c, kind, size, &device, &why);
	if (!owner)
		return why;
	struct object *o = object_new();
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->ptr = number;
	o->mipmap = mipmap;
	own(c, o, space, kind, size, device, owner);
	if (kind == KIND_HOST)
		host_note(o);
	return CUDA_SUCCESS;
}

void free_object(struct call *c, struct object *o, enum journal_type type)
{
	record(c, type, o);
	account(o->kind, o->device, o->size, false);
	forget(o->space, o->ptr);
	o->next->prev = o->prev;
	o->prev->next = o->next;
	o->owner = NULL;
	if (o->pool)
		pool_account(o->pool, o->size, false);
	if (o->space == SPACE_MEMORY) {
		address_free(o);
		return;
	}
	if (o->space != SPACE_ARRAY)
		host_forget(o);
	if (o->space == SPACE_HOST)
		free((void *)o->ptr);
	else if (o->space == SPACE_ARRAY)
		handle_free(o->ptr);
	object_free(o);
}

/* ------------------------------------------------------------------ contexts */

void context_changed(void)
{
	thread.known = 0;
	__atomic_store_n(&sim.contexts, sim.contexts + 1, __ATOMIC_RELEASE);
}

struct context *current(CUresult *why)
{
	if (!thread.depth) {
		*why = CUDA_ERROR_INVALID_CONTEXT;
		return NULL;
	}
	/* By its number: it may have been destroyed since, also by another thread. */
	struct context *ctx = find(SPACE_CONTEXT, thread.stack[thread.depth - 1]);
	if (!ctx || (ctx->primary && !ctx->retained)) {
		*why = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		return NULL;
	}
	return ctx;
}

void free_all(struct call *c, struct context *ctx)
{
	while (ctx->objects.next != &ctx->objects)
		free_object(c, ctx->objects.next, JOURNAL_IMPLICIT);
}

void state_reset(void)
{
	/* State inherited by a forked child is not touched: it is the parent's. */
	table.slots = NULL;
	table.count = table.mask = 0;
	addresses_reset();
	memset(sim.used, 0, sizeof(sim.used));
	sim.managed = sim.calls = sim.seq = 0;
	sim.initialized = false;
	context_changed();
	thread.depth = 0;
	thread.tid = 0;
	thread.outer_api = 0;
	for (int d = 0; d < sim.devices; d++) {
		struct context *p = &sim.primary[d];
		*p = (struct context){.handle = handle_new(), .device = d, .primary = true};
		p->objects.next = p->objects.prev = &p->objects;
		insert(SPACE_CONTEXT, p->handle, p);
		sim.default_pool[d] = (struct pool){.handle = handle_new(), .device = d};
		insert(SPACE_POOL, sim.default_pool[d].handle, &sim.default_pool[d]);
		sim.current_pool[d] = sim.default_pool[d].handle;
	}
}
