/* SPDX-License-Identifier: Apache-2.0 */

/* Stream-ordered memory and its pools. */
#include <stdlib.h>
#include <string.h>

#include "exports.h"
#include "state.h"

CUresult cuMemFree_v2(CUdeviceptr dptr);

static struct stream *stream_of(CUstream s)
{
	return find(SPACE_STREAM, s);
}

bool is_stream(CUstream s)
{
	return s <= 2 || stream_of(s);
}

/* A pool takes memory from the device, and keeps it when memory is freed, in these steps. */
#define POOL_STEP (32ull << 20)

void pool_account(uint64_t handle, uint64_t size, bool more)
{
	struct pool *p = find(SPACE_POOL, handle);
	if (!p) /* destroyed before its memory was freed */
		return;
	p->used += more ? size : -size;
	if (p->used > p->used_high)
		p->used_high = p->used;
	if (p->used > p->reserved)
		p->reserved = (p->used + POOL_STEP - 1) & ~(POOL_STEP - 1);
	if (p->reserved > p->reserved_high)
		p->reserved_high = p->reserved;
}

static CUresult alloc_from(struct call *c, CUdeviceptr *out, uint64_t size, CUmemoryPool handle,
			   CUstream s)
{
	uint64_t p;
	CUresult why = CUDA_SUCCESS;
	struct context *ctx = stream_of(s) ? stream_of(s)->context : current(&why);
	if (!ctx)
		return why;
	struct pool *pool = find(SPACE_POOL, handle ? handle : sim.current_pool[ctx->device]);
	if (!out || !pool || !is_stream(s))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = alloc_memory(c, pool->device < 0 ? KIND_HOST : KIND_POOL, size, pool->device, false, &p);
	if (r != CUDA_SUCCESS)
		return r;
	struct object *o = find(SPACE_MEMORY, p);
	o->pool = pool->handle;
	pool_account(o->pool, o->size, true);
	*out = p;
	return CUDA_SUCCESS;
}

CUresult impl_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream s)
{
	return RUN(cuMemAllocAsync, alloc_from(&c, dptr, bytes, 0, s));
}

CUresult impl_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream s)
{
	return RUN(cuMemAllocAsync_ptsz, alloc_from(&c, dptr, bytes, 0, s));
}

CUresult impl_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream s)
{
	return RUN(cuMemAllocFromPoolAsync,
		   pool ? alloc_from(&c, dptr, bytes, pool, s) : CUDA_ERROR_INVALID_VALUE);
}

CUresult impl_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
					   CUstream s)
{
	return RUN(cuMemAllocFromPoolAsync_ptsz,
		   pool ? alloc_from(&c, dptr, bytes, pool, s) : CUDA_ERROR_INVALID_VALUE);
}

CUresult impl_cuMemFreeAsync(CUdeviceptr dptr, CUstream s)
{
	if (sim.nest) {
		CUresult r;
		if (injected_now(API_cuMemFreeAsync, &r))
			return r;
		nest_begin(API_cuMemFreeAsync, KIND_POOL);
		return nest_end(cuMemFree_v2(dptr));
	}
	return RUN(cuMemFreeAsync, is_stream(s) ? free_memory(&c, dptr) : CUDA_ERROR_INVALID_VALUE);
}

CUresult impl_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream s)
{
	return RUN(cuMemFreeAsync_ptsz,
		   is_stream(s) ? free_memory(&c, dptr) : CUDA_ERROR_INVALID_VALUE);
}

CUresult location_device(CUmemLocation at, int *device)
{
	*device = -1;
	switch (at.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		if (at.id < 0 || at.id >= sim.devices)
			return CUDA_ERROR_INVALID_DEVICE;
		*device = at.id;
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult pool_create(CUmemoryPool *out, const CUmemPoolProps *props)
{
	if (!out || !props)
		return CUDA_ERROR_INVALID_VALUE;
	int device;
	CUresult r = location_device(props->location, &device);
	if (r != CUDA_SUCCESS)
		return r;
	struct pool *p = calloc(1, sizeof(*p));
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*p = (struct pool){.handle = handle_new(), .device = device};
	insert(SPACE_POOL, p->handle, p);
	*out = p->handle;
	return CUDA_SUCCESS;
}

CUresult impl_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	return RUN(cuMemPoolCreate, pool_create(out, props));
}

CUresult pool_of(CUmemoryPool *out, CUdevice dev, bool is_default)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (dev < 0 || dev >= sim.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = is_default ? sim.default_pool[dev].handle : sim.current_pool[dev];
	return CUDA_SUCCESS;
}

CUresult impl_cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice dev)
{
	return RUN(cuDeviceGetDefaultMemPool, pool_of(out, dev, true));
}

CUresult impl_cuDeviceGetMemPool(CUmemoryPool *out, CUdevice dev)
{
	return RUN(cuDeviceGetMemPool, pool_of(out, dev, false));
}

/* A pool with allocations is destroyed after them; its number is released now. */
CUresult impl_cuMemPoolDestroy(CUmemoryPool handle)
{
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	struct pool *p = find(SPACE_POOL, handle);
	if (!p || (p->device >= 0 && p == &sim.default_pool[p->device])) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else {
		if (p->device >= 0 && sim.current_pool[p->device] == handle)
			sim.current_pool[p->device] = sim.default_pool[p->device].handle;
		forget(SPACE_POOL, handle);
		handle_free(handle);
		free(p);
	}
	pthread_mutex_unlock(&sim.lock);
	return r;
}

/* Runs an expression with the lock held and the pool `p`. */
#define WITH_POOL(handle, expression)                     \
	({                                                \
		CUresult r_ = CUDA_ERROR_INVALID_VALUE;   \
		pthread_mutex_lock(&sim.lock);            \
		struct pool *p = find(SPACE_POOL, handle); \
		if (p)                                    \
			r_ = (expression);                \
		pthread_mutex_unlock(&sim.lock);          \
		r_;                                       \
	})

static CUresult trim(struct pool *p, uint64_t keep)
{
	uint64_t least = (p->used + POOL_STEP - 1) & ~(POOL_STEP - 1);
	if (p->reserved > keep)
		p->reserved = keep > least ? keep : least;
	return CUDA_SUCCESS;
}

CUresult impl_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	return WITH_POOL(handle, trim(p, keep));
}

/* CUmemPool_attribute: 1 to 3 are ints (which frees may be reused), the rest 64-bit. */
enum { POOL_RELEASE_THRESHOLD = 4, POOL_RESERVED, POOL_RESERVED_HIGH, POOL_USED, POOL_USED_HIGH };

static uint64_t *pool_number(struct pool *p, int attribute)
{
	switch (attribute) {
	case POOL_RESERVED:
		return &p->reserved;
	case POOL_RESERVED_HIGH:
		return &p->reserved_high;
	case POOL_USED:
		return &p->used;
	case POOL_USED_HIGH:
		return &p->used_high;
	}
	return attribute >= 1 && attribute <= POOL_RELEASE_THRESHOLD ? &p->settings[attribute] : NULL;
}

static CUresult pool_get(struct pool *p, int attribute, void *out)
{
	const uint64_t *n = pool_number(p, attribute);
	if (!n || !out)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(out, n, attribute < POOL_RELEASE_THRESHOLD ? sizeof(int) : sizeof(*n));
	return CUDA_SUCCESS;
}

/* High watermarks can only be reset to the current value. */
static CUresult pool_set(struct pool *p, int attribute, const void *value)
{
	uint64_t *n = pool_number(p, attribute);
	if (!n || !value || attribute == POOL_RESERVED || attribute == POOL_USED)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == POOL_RESERVED_HIGH || attribute == POOL_USED_HIGH)
		*n = n[-1];
	else
		memcpy(n, value, attribute < POOL_RELEASE_THRESHOLD ? sizeof(int) : sizeof(*n));
	return CUDA_SUCCESS;
}

CUresult impl_cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *out)
{
	return WITH_POOL(handle, pool_get(p, attribute, out));
}

CUresult impl_cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value)
{
	return WITH_POOL(handle, pool_set(p, attribute, value));
}

CUresult impl_cuMemPoolSetAccess(CUmemoryPool handle, const void *list, size_t count)
{
	return WITH_POOL(handle, count && !list ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}
