/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The virtual memory management entries of MEMORY_APIS (physical memory and its
 * mappings), and the address ranges that they map into. None needs a context.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state.h"

struct mapping {
	uint64_t address, size;
	struct physical *physical;
};

/* Sorted by address, never overlapping. */
static struct {
	struct mapping *all;
	size_t count, room;
} mappings;

/* Reserved address ranges: a list, since workloads have few. */
static struct range {
	uint64_t address, size;
	bool real;
	bool gone; /* HIP: freed; physical memory may still refer to it */
	struct physical *held; /* HIP */
	struct range *next;
} *ranges;
static uint64_t next_range = 0x300000000000ull;

void vmm_reset(void)
{
	memset(&mappings, 0, sizeof(mappings));
	ranges = NULL;
	next_range = 0x300000000000ull;
}

/* The index of the first mapping that ends after the address. */
static size_t mapping_at(uint64_t address)
{
	size_t lo = 0, hi = mappings.count;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (mappings.all[mid].address + mappings.all[mid].size > address)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

struct object *vmm_at(uint64_t p, struct mapped *mapped)
{
	size_t i = mapping_at(p);
	if (i == mappings.count || mappings.all[i].address > p)
		return NULL;
	*mapped = (struct mapped){mappings.all[i].address, mappings.all[i].size};
	return &mappings.all[i].physical->object;
}

static struct range *range_of(uint64_t address, uint64_t size)
{
	struct range *r = ranges;
	while (r && !(address >= r->address && address - r->address <= r->size &&
		      size <= r->size - (address - r->address)))
		r = r->next;
	return r;
}

bool vmm_covers(uint64_t p, uint64_t n)
{
	struct range *r = mappings.count ? range_of(p, n) : NULL;
	uint64_t at = p;
	if (!r || !r->real)
		return false;
	for (size_t i = mapping_at(p); i < mappings.count && mappings.all[i].address <= at; i++) {
		at = mappings.all[i].address + mappings.all[i].size;
		if (at - p >= n)
			return true;
	}
	return false;
}

static void physical_free(struct call *c, struct physical *p, enum journal_type type)
{
	record(c, type, &p->object);
	account(p->object.kind, p->object.device, p->object.size, false);
	free(p);
}

static void drop_if_unused(struct call *c, struct physical *p)
{
	if (p->references || p->mappings)
		return;
	forget(SPACE_PHYSICAL, p->object.ptr);
	handle_free(p->object.ptr);
	if (p->imported) {
		free(p);
	} else if (p->range && !p->range->gone) {
		record(c, JOURNAL_HELD, &p->object);
		p->next = p->range->held;
		p->range->held = p;
	} else {
		physical_free(c, p, JOURNAL_FREE);
	}
}

/* Memory on no device is the host's. Where an import's is, is not known. */
static struct physical *physical_new(uint64_t *out, uint64_t size, int device, bool imported)
{
	struct physical *p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	p->object.ptr = handle_new();
	p->object.size = size;
	p->object.device = device;
	p->object.kind = device < 0 && !imported ? KIND_HOST : KIND_VMM;
	p->references = 1;
	p->imported = imported;
	insert(SPACE_PHYSICAL, p->object.ptr, p);
	*out = p->object.ptr;
	return p;
}

static CUresult create(struct call *c, uint64_t *out, uint64_t size, const CUmemAllocationProp *prop)
{
	c->size = size;
	if (!out || !prop || !size || size % GRANULARITY ||
	    prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	int device;
	CUresult r = location_device(prop->location, &device);
	if (r != CUDA_SUCCESS)
		return r;
	c->device = device;
	if (!fits(KIND_VMM, device, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct physical *p = physical_new(out, size, device, false);
	account(p->object.kind, device, size, true);
	record(c, JOURNAL_ALLOC, &p->object);
	p->object.alloc_seq = sim.seq;
	return CUDA_SUCCESS;
}

CUresult impl_cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
			  const CUmemAllocationProp *prop, unsigned long long flags)
{
	return RUN(cuMemCreate, flags ? CUDA_ERROR_INVALID_VALUE : create(&c, out, size, prop));
}

static CUresult import(struct call *c, uint64_t *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	/* Another process's memory: held there, only mapped here. */
	c->ptr = physical_new(out, 0, -1, true)->object.ptr;
	return CUDA_SUCCESS;
}

CUresult impl_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
					     int type)
{
	(void)os_handle;
	(void)type;
	return RUN(cuMemImportFromShareableHandle, import(&c, out));
}

static CUresult retain(struct call *c, uint64_t *out, uint64_t address)
{
	size_t i = mapping_at(address);
	if (!out || i == mappings.count || mappings.all[i].address > address)
		return CUDA_ERROR_INVALID_VALUE;
	struct physical *p = mappings.all[i].physical;
	p->references++;
	*out = c->ptr = p->object.ptr;
	return CUDA_SUCCESS;
}

CUresult impl_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
	return RUN(cuMemRetainAllocationHandle, retain(&c, out, (uint64_t)address));
}

static CUresult release(struct call *c, uint64_t handle)
{
	struct physical *p = find(SPACE_PHYSICAL, handle);
	c->ptr = handle;
	/* Without references it only lives by its mappings: not the caller's. */
	if (!p || !p->references)
		return CUDA_ERROR_INVALID_VALUE;
	p->references--;
	drop_if_unused(c, p);
	return CUDA_SUCCESS;
}

CUresult impl_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	return RUN(cuMemRelease, release(&c, handle));
}

static CUresult map(struct call *c, uint64_t address, uint64_t size, uint64_t offset,
		    uint64_t handle)
{
	struct physical *p = find(SPACE_PHYSICAL, handle);
	c->ptr = handle;
	c->size = size;
	if (!p || !p->references || !size || size % GRANULARITY || address % GRANULARITY || offset ||
	    !range_of(address, size) || (!p->imported && size > p->object.size))
		return CUDA_ERROR_INVALID_VALUE;
	size_t i = mapping_at(address);
	if (i < mappings.count && mappings.all[i].address < address + size)
		return CUDA_ERROR_INVALID_VALUE;
	if (mappings.count == mappings.room) {
		mappings.room = mappings.room ? mappings.room * 2 : 64;
		mappings.all = realloc(mappings.all, mappings.room * sizeof(*mappings.all));
		if (!mappings.all)
			abort();
	}
	memmove(&mappings.all[i + 1], &mappings.all[i],
		(mappings.count - i) * sizeof(*mappings.all));
	mappings.all[i] = (struct mapping){address, size, p};
	mappings.count++;
	p->mappings++;
#ifdef VENDOR_HIP
	p->range = sim.held ? range_of(address, size) : NULL;
#endif
	return CUDA_SUCCESS;
}

CUresult impl_cuMemMap(CUdeviceptr address, size_t size, size_t offset,
		       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	return RUN(cuMemMap,
		   flags ? CUDA_ERROR_INVALID_VALUE : map(&c, address, size, offset, handle));
}

/* The range must consist of whole mappings without a gap. */
static CUresult unmap(struct call *c, uint64_t address, uint64_t size)
{
	c->ptr = address;
	c->size = size;
	size_t first = mapping_at(address), i = first;
	uint64_t at = address, to;
	if (!size || __builtin_add_overflow(address, size, &to))
		return CUDA_ERROR_INVALID_VALUE;
	for (; i < mappings.count && at < to; i++) {
		if (mappings.all[i].address != at)
			return CUDA_ERROR_INVALID_VALUE;
		at += mappings.all[i].size;
	}
	if (at != to)
		return CUDA_ERROR_INVALID_VALUE;
	if (range_of(address, size)->real)
		contents_drop(address, size);
	for (size_t j = first; j < i; j++) {
		mappings.all[j].physical->mappings--;
		drop_if_unused(c, mappings.all[j].physical);
	}
	memmove(&mappings.all[first], &mappings.all[i],
		(mappings.count - i) * sizeof(*mappings.all));
	mappings.count -= i - first;
	return CUDA_SUCCESS;
}

CUresult impl_cuMemUnmap(CUdeviceptr address, size_t size)
{
	return RUN(cuMemUnmap, unmap(&c, address, size));
}

/* ---------------------------------------------------- address ranges, access */

CUresult impl_cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr at,
				  unsigned long long flags)
{
	(void)at; /* a wish; the driver may choose another address */
	if (!out || !size || size % GRANULARITY || flags || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t align = alignment > GRANULARITY ? alignment : GRANULARITY;
	struct range *r = calloc(1, sizeof(*r));
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim.lock);
	r->address = (next_range + align - 1) & ~(align - 1);
	r->size = size;
	/* Copied data needs real memory, as far as it is available. */
	void *memory = mmap((void *)r->address, size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	r->real = memory == (void *)r->address;
	if (r->real) {
		madvise(memory, size, MADV_NOHUGEPAGE);
		madvise(memory, size, MADV_DONTDUMP);
	} else if (memory != MAP_FAILED) { /* Linux before 4.17 treats the address as a hint */
		munmap(memory, size);
	}
	next_range = r->address + size;
	r->next = ranges;
	ranges = r;
	*out = r->address;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

static struct range **range_at(uint64_t address, uint64_t size)
{
	size_t i = mapping_at(address);
	struct range **at = &ranges;
	if (i < mappings.count && mappings.all[i].address < address + size)
		return NULL;
	while (*at && ((*at)->address != address || (*at)->size != size))
		at = &(*at)->next;
	return *at ? at : NULL;
}

static CUresult range_free(uint64_t address, uint64_t size, struct range **freed)
{
	struct range **at = range_at(address, size), *r;
	if (!at)
		return CUDA_ERROR_INVALID_VALUE;
	*freed = r = *at;
	*at = r->next;
	if (r->real)
		munmap((void *)r->address, r->size);
	/* The most recent range is given back, so that addresses recur. */
	if (r->address + r->size == next_range)
		next_range = r->address;
	return CUDA_SUCCESS;
}

#ifdef VENDOR_HIP
static CUresult address_free_held(struct call *c, uint64_t address, uint64_t size)
{
	struct object call = {.ptr = address, .size = size, .kind = KIND_VMM};
	struct range *r;
	CUresult result = range_free(address, size, &r);
	c->ptr = address;
	c->size = size;
	if (result != CUDA_SUCCESS)
		return result;
	r->gone = true; /* not freed: see drop_if_unused() */
	if (r->held)
		record(c, JOURNAL_CALL, &call);
	while (r->held) {
		struct physical *p = r->held;
		r->held = p->next;
		physical_free(c, p, JOURNAL_IMPLICIT);
	}
	return result;
}

CUresult impl_hipMemAddressFree(CUdeviceptr address, size_t size)
{
	return RUN(hipMemAddressFree, address_free_held(&c, address, size));
}
#else
CUresult impl_cuMemAddressFree(CUdeviceptr address, size_t size)
{
	struct range *r = NULL;
	pthread_mutex_lock(&sim.lock);
	CUresult result = range_free(address, size, &r);
	pthread_mutex_unlock(&sim.lock);
	free(r);
	return result;
}
#endif

CUresult impl_cuMemSetAccess(CUdeviceptr address, size_t size, const void *desc, size_t count)
{
	(void)address;
	return size && desc && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, int option)
{
	(void)option;
	if (!out || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*out = GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult impl_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
					   unsigned long long flags)
{
	(void)out, (void)handle, (void)type, (void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}
