/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The entries of DRIVER_CALLS that copy and set. Linear ones happen, at once; those of
 * arrays and of two and three dimensions are only recorded.
 */
#include "later.h"
#include "launch.h"

/* Captured work has no effect, even later: a graph is only a number of nodes. */
CUresult copy(struct work *w, uint64_t to, uint64_t from)
{
	CUresult r = submit(w);
	if (r == CUDA_SUCCESS && !w->captured)
		contents_copy(to, from, w->bytes);
	return r;
}

/*
 * To the host: the call returns when the stream is that far, except, if it is asynchronous, with pinned
 * memory (API synchronization behavior). The lock is not held meanwhile.
 */
static CUresult to_host(struct work *w, uint64_t to, uint64_t from, bool is_async)
{
	CUresult r = submit(w);
	if (r != CUDA_SUCCESS || w->captured)
		return r;
	if (w->bytes && !(is_async && host_at(to))) {
		pthread_mutex_unlock(&sim.lock);
		later_stream(w->stream, true);
		pthread_mutex_lock(&sim.lock);
	}
	contents_copy(to, from, w->bytes);
	return CUDA_SUCCESS;
}

CUresult set(struct work *w, uint64_t p, unsigned value, unsigned element_bytes, uint64_t n)
{
	CUresult r = submit(w);
	if (r == CUDA_SUCCESS && !w->captured)
		contents_set(p, value, element_bytes, n);
	return r;
}

#define COPY_PTDS(symbol, parameters, dir) \
	PTDS(symbol, parameters, copy(&w, to, from), .bytes = n, .direction = dir)
#define COPY_PTSZ(symbol, parameters, dir) \
	PTSZ(symbol, parameters, copy(&w, to, from), .bytes = n, .direction = dir, .stream = s)
/* Arrays have no contents. */
#define ARRAY_PTDS(symbol, parameters, dir) \
	PTDS(symbol, parameters, submit(&w), .bytes = n, .direction = dir)
#define ARRAY_PTSZ(symbol, parameters, dir) \
	PTSZ(symbol, parameters, submit(&w), .bytes = n, .direction = dir, .stream = s)

#define TO_FROM (uint64_t to, uint64_t from, size_t n)
#define TO_FROM_AT (uint64_t to, uint64_t from, size_t at, size_t n)
#define TO_AT_FROM (uint64_t to, size_t at, uint64_t from, size_t n)
COPY_PTDS(cuMemcpy, TO_FROM, COPY_ANY)
COPY_PTDS(cuMemcpyHtoD_v2, TO_FROM, COPY_HTOD)
PTDS(cuMemcpyDtoH_v2, TO_FROM, to_host(&w, to, from, false), .bytes = n, .direction = COPY_DTOH)
COPY_PTDS(cuMemcpyDtoD_v2, TO_FROM, COPY_DTOD)
ARRAY_PTDS(cuMemcpyHtoA_v2, TO_AT_FROM, COPY_HTOD)
ARRAY_PTDS(cuMemcpyAtoH_v2, TO_FROM_AT, COPY_DTOH)
ARRAY_PTDS(cuMemcpyDtoA_v2, TO_AT_FROM, COPY_DTOD)
ARRAY_PTDS(cuMemcpyAtoD_v2, TO_FROM_AT, COPY_DTOD)
ARRAY_PTDS(cuMemcpyAtoA_v2, (uint64_t to, size_t at, uint64_t from, size_t where, size_t n), COPY_DTOD)
COPY_PTDS(cuMemcpyPeer, (uint64_t to, CUcontext t, uint64_t from, CUcontext f, size_t n), COPY_PTOP)

COPY_PTSZ(cuMemcpyAsync, (uint64_t to, uint64_t from, size_t n, CUstream s), COPY_ANY)
COPY_PTSZ(cuMemcpyWithAttributesAsync,
	  (uint64_t to, uint64_t from, size_t n, const void *attributes, CUstream s), COPY_ANY)
COPY_PTSZ(cuMemcpyHtoDAsync_v2, (uint64_t to, uint64_t from, size_t n, CUstream s), COPY_HTOD)
PTSZ(cuMemcpyDtoHAsync_v2, (uint64_t to, uint64_t from, size_t n, CUstream s), to_host(&w, to, from, true),
     .bytes = n, .direction = COPY_DTOH, .stream = s)
COPY_PTSZ(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t n, CUstream s), COPY_DTOD)
ARRAY_PTSZ(cuMemcpyHtoAAsync_v2, (uint64_t to, size_t at, uint64_t from, size_t n, CUstream s), COPY_HTOD)
ARRAY_PTSZ(cuMemcpyAtoHAsync_v2, (uint64_t to, uint64_t from, size_t at, size_t n, CUstream s), COPY_DTOH)
/* What the copies of a batch have in common, and where one of them fails, is ignored. */
static CUresult batch(struct work *w, const uint64_t *to, const uint64_t *from, const size_t *sizes, size_t count)
{
	if (!to || !from || !sizes || !count)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = submit(w);
	for (size_t i = 0; r == CUDA_SUCCESS && !w->captured && i < count; i++)
		contents_copy(to[i], from[i], sizes[i]);
	return r;
}

static uint64_t sum(const size_t *sizes, size_t count)
{
	uint64_t bytes = 0;
	while (sizes && count--)
		bytes += *sizes++;
	return bytes;
}

#define BATCH batch(&w, to, from, sizes, count), .bytes = sum(sizes, count), .direction = COPY_ANY, .stream = s
PTSZ(cuMemcpyBatchAsync,
     (const uint64_t *to, const uint64_t *from, const size_t *sizes, size_t count, const void *attributes,
      const size_t *firsts, size_t attribute_count, size_t *failed, CUstream s), BATCH)
PTSZ(cuMemcpyBatchAsync_v2,
     (const uint64_t *to, const uint64_t *from, const size_t *sizes, size_t count, const void *attributes,
      const size_t *firsts, size_t attribute_count, CUstream s), BATCH)

COPY_PTSZ(cuMemcpyPeerAsync,
	  (uint64_t to, CUcontext t, uint64_t from, CUcontext f, size_t n, CUstream s), COPY_PTOP)

/* CUmemorytype, hipMemoryType */
#ifdef VENDOR_HIP
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_OF_ARRAYS = 10 };
#else
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_OF_ARRAYS = 3 };
#endif

static bool is_one(uint32_t type)
{
	return type == MEMORY_HOST || type == MEMORY_DEVICE || type == MEMORY_OF_ARRAYS;
}

static uint8_t direction(uint32_t from, uint32_t to)
{
	if (!is_one(from) || !is_one(to))
		return COPY_ANY; /* unified: either's */
	if (from == MEMORY_HOST)
		return to == MEMORY_HOST ? COPY_HTOH : COPY_HTOD;
	return to == MEMORY_HOST ? COPY_DTOH : COPY_DTOD;
}

typedef struct {
	size_t sx, sy;
	uint32_t from;
	const void *sh;
	uint64_t sd, sa;
	size_t spitch, dx, dy;
	uint32_t to;
	void *dh;
	uint64_t dd, da;
	size_t dpitch, width, height;
} CUDA_MEMCPY2D;
_Static_assert(sizeof(CUDA_MEMCPY2D) == 128, "as in cuda.h");

#define COPY_2D submit(&w), .bytes = d->width * d->height, .direction = direction(d->from, d->to)
PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *d), COPY_2D)
PTDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *d), COPY_2D)
PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *d, CUstream s), COPY_2D, .stream = s)

typedef struct {
	size_t sx, sy, sz, slod;
	uint32_t from;
	const void *sh;
	uint64_t sd, sa;
#ifndef VENDOR_HIP
	uint64_t scontext;
#endif
	size_t spitch, sheight, dx, dy, dz, dlod;
	uint32_t to;
	void *dh;
	uint64_t dd, da;
#ifndef VENDOR_HIP
	uint64_t dcontext;
#endif
	size_t dpitch, dheight, width, height, depth;
} CUDA_MEMCPY3D;
#ifdef VENDOR_HIP
_Static_assert(sizeof(CUDA_MEMCPY3D) == 184, "as HIP_MEMCPY3D in driver_types.h");
#else
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "as in cuda.h");
#endif

#define COPY_3D submit(&w), .bytes = d->width * d->height * d->depth
PTDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *d), COPY_3D, .direction = direction(d->from, d->to))
PTSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *d, CUstream s), COPY_3D, .stream = s,
     .direction = direction(d->from, d->to))
PTDS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D *d), COPY_3D, .direction = COPY_PTOP)
PTSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D *d, CUstream s), COPY_3D, .stream = s,
     .direction = COPY_PTOP)
PTSZ(cuMemPrefetchAsync, (uint64_t p, size_t n, CUdevice to, CUstream s), submit(&w), .bytes = n,
     .stream = s, .direction = to < 0 ? COPY_DTOH : COPY_HTOD)
PTSZ(cuMemPrefetchAsync_v2, (uint64_t p, size_t n, CUmemLocation to, unsigned flags, CUstream s),
     flags ? CUDA_ERROR_INVALID_VALUE : submit(&w), .bytes = n, .stream = s,
     .direction = to.type == CU_MEM_LOCATION_TYPE_DEVICE ? COPY_HTOD : COPY_DTOH)

#define SET(bits)                                                                           \
	PTDS(cuMemsetD##bits##_v2, (uint64_t p, unsigned v, size_t n), set(&w, p, v, bits / 8, n), \
	     .bytes = n * bits / 8)                                                         \
	PTSZ(cuMemsetD##bits##Async, (uint64_t p, unsigned v, size_t n, CUstream s), set(&w, p, v, bits / 8, n), \
	     .bytes = n * bits / 8, .stream = s)                                            \
	PTDS(cuMemsetD2D##bits##_v2, (uint64_t p, size_t pitch, unsigned v, size_t n, size_t h), \
	     submit(&w), .bytes = n * h * bits / 8)                                         \
	PTSZ(cuMemsetD2D##bits##Async,                                                      \
	     (uint64_t p, size_t pitch, unsigned v, size_t n, size_t h, CUstream s), submit(&w), \
	     .bytes = n * h * bits / 8, .stream = s)
SET(8)
SET(16)
SET(32)
