/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The entries of MEMORY_APIS that allocate and free memory. The exported symbol
 * is a stub (exports.c) that jumps to impl_<symbol>. Parameter lists are those
 * of the CUDA Driver API reference, as are the rules unless a comment states otherwise.
 */
#include <stdlib.h>

#include "state.h"

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr dptr);

/* ------------------------------------------------------- device memory */

static CUresult alloc(struct call *c, enum alloc_kind kind, uint64_t size, CUdeviceptr *out)
{
	uint64_t p;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = alloc_memory(c, kind, size, -1, false, &p);
	if (r == CUDA_SUCCESS)
		*out = p;
	return r;
}

static CUresult alloc_v1(struct call *c, uint64_t size, CUdeviceptr_v1 *out)
{
	uint64_t p;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = alloc_memory(c, KIND_DEVICE, size, -1, true, &p);
	if (r == CUDA_SUCCESS)
		*out = (CUdeviceptr_v1)p;
	return r;
}

CUresult impl_cuMemAlloc(CUdeviceptr_v1 *dptr, uint32_t bytes)
{
	return RUN(cuMemAlloc, alloc_v1(&c, bytes, dptr));
}

CUresult impl_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
	return RUN(cuMemAlloc_v2, alloc(&c, KIND_DEVICE, bytes, dptr));
}

static bool pitch_of(uint64_t width, uint64_t height, unsigned element, uint64_t *pitch,
		     uint64_t *size)
{
	if ((element != 4 && element != 8 && element != 16) || !width || !height)
		return false;
	return !__builtin_add_overflow(width, PITCH_ALIGN - 1, pitch) &&
	       (*pitch &= ~(PITCH_ALIGN - 1), !__builtin_mul_overflow(*pitch, height, size));
}

CUresult impl_cuMemAllocPitch(CUdeviceptr_v1 *dptr, uint32_t *pitch, uint32_t width,
			      uint32_t height, unsigned element)
{
	uint64_t p = 0, size = 0;
	bool ok = pitch && pitch_of(width, height, element, &p, &size);
	CUresult r = RUN(cuMemAllocPitch,
			 ok ? alloc_v1(&c, size, dptr) : CUDA_ERROR_INVALID_VALUE);
	if (r == CUDA_SUCCESS)
		*pitch = (uint32_t)p;
	return r;
}

CUresult impl_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
				 unsigned element)
{
	uint64_t p = 0, size = 0;
	bool ok = pitch && pitch_of(width, height, element, &p, &size);
	CUresult r = RUN(cuMemAllocPitch_v2,
			 ok ? alloc(&c, KIND_DEVICE, size, dptr) : CUDA_ERROR_INVALID_VALUE);
	if (r == CUDA_SUCCESS)
		*pitch = p;
	return r;
}

/* Device, managed and stream-ordered memory: each free accepts all of them, and 0. */
CUresult free_memory(struct call *c, uint64_t p)
{
	struct object *o = find(SPACE_MEMORY, p);
	c->ptr = p;
	if (!p)
		return CUDA_SUCCESS;
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	free_object(c, o, JOURNAL_FREE);
	return CUDA_SUCCESS;
}

CUresult impl_cuMemFree(CUdeviceptr_v1 dptr)
{
	return RUN(cuMemFree, free_memory(&c, dptr));
}

CUresult impl_cuMemFree_v2(CUdeviceptr dptr)
{
	return RUN(cuMemFree_v2, free_memory(&c, dptr));
}

/* ------------------------------------------------- managed memory, nesting */

void nest_begin(unsigned api, enum alloc_kind kind)
{
	thread.outer_api = api;
	thread.outer_kind = (uint8_t)kind;
}

CUresult nest_end(CUresult r)
{
	thread.outer_api = 0;
	return r;
}

bool injected_now(unsigned api, CUresult *r)
{
	struct call c;
	if (!sim.fail_every)
		return false;
	*r = begin(&c, api);
	if (*r == CUDA_SUCCESS) {
		pthread_mutex_unlock(&sim.lock);
		return false;
	}
	end(&c, *r);
	return true;
}

CUresult impl_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned flags)
{
	bool ok = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
	if (sim.nest && ok && dptr) {
		CUresult r;
		if (injected_now(API_cuMemAllocManaged, &r))
			return r;
		nest_begin(API_cuMemAllocManaged, KIND_MANAGED);
		return nest_end(cuMemAlloc_v2(dptr, bytes));
	}
	return RUN(cuMemAllocManaged, ok ? alloc(&c, KIND_MANAGED, bytes, dptr) : CUDA_ERROR_INVALID_VALUE);
}

/* ------------------------------------------------------- pinned host memory */

static CUresult host_alloc(struct call *c, void **out, uint64_t size)
{
	void *p;
	c->size = size;
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (posix_memalign(&p, 64, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = alloc_object(c, SPACE_HOST, (uint64_t)p, size, false);
	if (r == CUDA_SUCCESS)
		*out = p;
	else
		free(p);
	return r;
}

CUresult impl_cuMemAllocHost(void **pp, uint32_t bytes)
{
	return RUN(cuMemAllocHost, host_alloc(&c, pp, bytes));
}

CUresult impl_cuMemAllocHost_v2(void **pp, size_t bytes)
{
	return RUN(cuMemAllocHost_v2, host_alloc(&c, pp, bytes));
}

CUresult impl_cuMemHostAlloc(void **pp, size_t bytes, unsigned flags)
{
	(void)flags;
	return RUN(cuMemHostAlloc, host_alloc(&c, pp, bytes));
}

static CUresult host_free(struct call *c, enum space space, uint64_t p, CUresult unknown)
{
	struct object *o = find(space, p);
	c->ptr = p;
	if (!p && space == SPACE_HOST)
		return CUDA_SUCCESS;
	if (!o)
		return unknown;
	free_object(c, o, JOURNAL_FREE);
	return CUDA_SUCCESS;
}

CUresult impl_cuMemFreeHost(void *p)
{
	return RUN(cuMemFreeHost, host_free(&c, SPACE_HOST, (uint64_t)p, CUDA_ERROR_INVALID_VALUE));
}

static CUresult host_register(struct call *c, uint64_t p, uint64_t size)
{
	c->ptr = p;
	c->size = size;
	if (!p || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (find(SPACE_REGISTERED, p) || find(SPACE_HOST, p))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return alloc_object(c, SPACE_REGISTERED, p, size, false);
}

CUresult impl_cuMemHostRegister(void *p, size_t bytes, unsigned flags)
{
	(void)flags;
	return RUN(cuMemHostRegister, host_register(&c, (uint64_t)p, bytes));
}

CUresult impl_cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
	(void)flags;
	return RUN(cuMemHostRegister_v2, host_register(&c, (uint64_t)p, bytes));
}

CUresult impl_cuMemHostUnregister(void *p)
{
	return RUN(cuMemHostUnregister, host_free(&c, SPACE_REGISTERED, (uint64_t)p,
						  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
}

/* -------------------------------------------------------------------- arrays */

/* Bytes per channel. Those of video are not simulated. */
static unsigned format_bytes(uint32_t format)
{
	if (format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4)
		return (format - CU_AD_FORMAT_UNORM_INT8X1) / 3 % 2 ? 2 : 1;
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	}
	return 0;
}

/* Bytes of a block of 4 x 4 texels, in which those formats are compressed; 0: another format. */
static unsigned block_bytes(uint32_t format)
{
	if (format < CU_AD_FORMAT_BC1_UNORM || format > CU_AD_FORMAT_BC7_UNORM_SRGB)
		return 0;
	if (format <= CU_AD_FORMAT_BC1_UNORM + 1 || format == CU_AD_FORMAT_BC4_UNORM ||
	    format == CU_AD_FORMAT_BC4_SNORM)
		return 8;
	return 16;
}

static uint64_t at_least_1(uint64_t n)
{
	return n ? n : 1;
}

static bool array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, uint64_t *size)
{
	uint64_t block = block_bytes(d->Format), side = block ? 4 : 1;
	uint64_t element = block ? block : format_bytes(d->Format) * (uint64_t)d->NumChannels;
	if (!element || !d->Width ||
	    (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4 && !block))
		return false;
	/* Its memory is mapped later: cuMemMapArrayAsync. */
	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		element = 0;
	return !__builtin_mul_overflow((d->Width + side - 1) / side,
				       (at_least_1(d->Height) + side - 1) / side, size) &&
	       !__builtin_mul_overflow(*size, at_least_1(d->Depth), size) &&
	       !__builtin_mul_overflow(*size, element, size);
}

static CUresult array(struct call *c, uint64_t *out, uint64_t size, bool mipmap)
{
	uint64_t handle = handle_new();
	CUresult r = alloc_object(c, SPACE_ARRAY, handle, size, mipmap);
	if (r == CUDA_SUCCESS)
		*out = handle;
	else
		handle_free(handle);
	return r;
}

CUresult array_create(struct call *c, CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	uint64_t size;
	if (!out || !array_bytes(d, &size))
		return CUDA_ERROR_INVALID_VALUE;
	return array(c, out, size, false);
}

CUresult impl_cuArrayCreate(CUarray *out, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	CUDA_ARRAY3D_DESCRIPTOR w = {0};
	if (d)
		w = (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
	return RUN(cuArrayCreate, array_create(&c, out, &w));
}

CUresult impl_cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR w = {0};
	if (d)
		w = (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
	return RUN(cuArrayCreate_v2, array_create(&c, out, &w));
}

CUresult impl_cuArray3DCreate(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	CUDA_ARRAY3D_DESCRIPTOR w = {0};
	if (d)
		w = (CUDA_ARRAY3D_DESCRIPTOR){d->Width,	 d->Height,	 d->Depth,
					      d->Format, d->NumChannels, d->Flags};
	return RUN(cuArray3DCreate, array_create(&c, out, &w));
}

CUresult impl_cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	static const CUDA_ARRAY3D_DESCRIPTOR none;
	return RUN(cuArray3DCreate_v2, array_create(&c, out, d ? d : &none));
}

static uint64_t half(uint64_t n)
{
	return n > 1 ? n / 2 : n;
}

/* The levels are clamped to [1, 1 + floor(log2(largest extent))]; layers do
 * not shrink from level to level. */
CUresult mipmap_create(struct call *c, CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
		       unsigned levels)
{
	if (!out || !d)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR level = *d;
	bool layered = d->Flags & CUDA_ARRAY3D_LAYERED;
	uint64_t largest = d->Width, size, total = 0;
	if (d->Height > largest)
		largest = d->Height;
	if (d->Depth > largest && !layered)
		largest = d->Depth;
	if (!array_bytes(d, &size))
		return CUDA_ERROR_INVALID_VALUE;
	unsigned most = 64 - (unsigned)__builtin_clzll(largest);
	levels = levels < 1 ? 1 : levels > most ? most : levels;
	for (unsigned i = 0; i < levels; i++) {
		if (!array_bytes(&level, &size) || __builtin_add_overflow(total, size, &total))
			return CUDA_ERROR_INVALID_VALUE;
		level.Width = half(level.Width);
		level.Height = half(level.Height);
		if (!layered)
			level.Depth = half(level.Depth);
	}
	return array(c, out, total, true);
}

CUresult impl_cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
				     unsigned levels)
{
	return RUN(cuMipmappedArrayCreate, mipmap_create(&c, out, d, levels));
}

static CUresult array_destroy(struct call *c, uint64_t handle, bool mipmap)
{
	struct object *o = find(SPACE_ARRAY, handle);
	c->ptr = handle;
	if (!o || o->mipmap != mipmap)
		return CUDA_ERROR_INVALID_HANDLE;
	free_object(c, o, JOURNAL_FREE);
	return CUDA_SUCCESS;
}

CUresult impl_cuArrayDestroy(CUarray a)
{
	return RUN(cuArrayDestroy, array_destroy(&c, a, false));
}

CUresult impl_cuMipmappedArrayDestroy(CUmipmappedArray a)
{
	return RUN(cuMipmappedArrayDestroy, array_destroy(&c, a, true));
}
