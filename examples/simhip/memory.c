/* SPDX-License-Identifier: Apache-2.0 */

/* Functions that the CUDA driver does not have: other names and forms of those that it has. */
#include <stdlib.h>

#include "../simcuda/state.h"

static CUresult alloc(struct call *c, uint64_t size, CUdeviceptr *out)
{
	uint64_t p;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = alloc_memory(c, KIND_DEVICE, size, -1, false, &p);
	if (r == CUDA_SUCCESS)
		*out = p;
	return r;
}

CUresult impl_hipExtMallocWithFlags(CUdeviceptr *out, size_t bytes, unsigned flags)
{
	(void)flags;
	return RUN(hipExtMallocWithFlags, alloc(&c, bytes, out));
}

CUresult impl_hipMallocPitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height)
{
	uint64_t p = 0, size = 0;
	bool ok = pitch && width && height && !__builtin_add_overflow(width, PITCH_ALIGN - 1, &p) &&
		  (p &= ~(PITCH_ALIGN - 1), !__builtin_mul_overflow(p, height, &size));
	CUresult r = RUN(hipMallocPitch, ok ? alloc(&c, size, out) : CUDA_ERROR_INVALID_VALUE);
	if (r == CUDA_SUCCESS)
		*pitch = p;
	return r;
}

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

CUresult impl_hipMemAllocHost(void **out, size_t bytes)
{
	return RUN(hipMemAllocHost, host_alloc(&c, out, bytes));
}

CUresult impl_hipHostAlloc(void **out, size_t bytes, unsigned flags)
{
	(void)flags;
	return RUN(hipHostAlloc, host_alloc(&c, out, bytes));
}

static CUresult free_known(struct call *c, enum space space, uint64_t number, bool mipmap,
			   CUresult unknown)
{
	struct object *o = find(space, number);
	c->ptr = number;
	if (!number && space == SPACE_HOST)
		return CUDA_SUCCESS;
	if (!o || o->mipmap != mipmap)
		return unknown;
	free_object(c, o, JOURNAL_FREE);
	return CUDA_SUCCESS;
}

CUresult impl_hipHostFree(void *p)
{
	return RUN(hipHostFree,
		   free_known(&c, SPACE_HOST, (uint64_t)p, false, CUDA_ERROR_INVALID_VALUE));
}

CUresult impl_hipFreeArray(CUarray a)
{
	return RUN(hipFreeArray, free_known(&c, SPACE_ARRAY, a, false, CUDA_ERROR_INVALID_HANDLE));
}

CUresult impl_hipFreeMipmappedArray(CUmipmappedArray a)
{
	return RUN(hipFreeMipmappedArray,
		   free_known(&c, SPACE_ARRAY, a, true, CUDA_ERROR_INVALID_HANDLE));
}

/* ------------------------------------------------------------- extents and channels */

/* hipChannelFormatDesc: bits of x, y, z and w. hipExtent: 24 bytes, by value on the stack. */
struct channels {
	int bits[4], kind;
};
struct extent {
	size_t width, height, depth;
};

/* False: no channels, or channels that differ. */
static bool describe(CUDA_ARRAY3D_DESCRIPTOR *d, const struct channels *from, struct extent e,
		     unsigned flags)
{
	*d = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = e.width, .Height = e.height, .Depth = e.depth, .Flags = flags};
	if (!from)
		return false;
	for (int i = 0; i < 4 && from->bits[i]; i++, d->NumChannels++)
		if (from->bits[i] != from->bits[0])
			return false;
	d->Format = from->bits[0] == 8	  ? CU_AD_FORMAT_UNSIGNED_INT8
		    : from->bits[0] == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
		    : from->bits[0] == 32 ? CU_AD_FORMAT_FLOAT
					  : 0;
	return d->Format;
}

static CUresult channels_array(struct call *c, CUarray *out, const struct channels *channels,
			       struct extent e)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	if (!describe(&d, channels, e, 0))
		return CUDA_ERROR_INVALID_VALUE;
	return array_create(c, out, &d);
}

CUresult impl_hipMallocArray(CUarray *out, const struct channels *channels, size_t width,
			     size_t height, unsigned flags)
{
	struct extent e = {width, height, 0};
	(void)flags;
	return RUN(hipMallocArray, channels_array(&c, out, channels, e));
}

CUresult impl_hipMalloc3DArray(CUarray *out, const struct channels *channels, struct extent e,
			       unsigned flags)
{
	(void)flags;
	return RUN(hipMalloc3DArray, channels_array(&c, out, channels, e));
}

static CUresult channels_mipmap(struct call *c, CUmipmappedArray *out,
				const struct channels *channels, struct extent e, unsigned levels,
				unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	if (!describe(&d, channels, e, flags))
		return CUDA_ERROR_INVALID_VALUE;
	return mipmap_create(c, out, &d, levels);
}

CUresult impl_hipMallocMipmappedArray(CUmipmappedArray *out, const struct channels *channels,
				      struct extent e, unsigned levels, unsigned flags)
{
	return RUN(hipMallocMipmappedArray, channels_mipmap(&c, out, channels, e, levels, flags));
}

struct pitched {
	uint64_t ptr;
	size_t pitch, width, height;
};

static CUresult pitched_alloc(struct call *c, struct pitched *out, struct extent e)
{
	uint64_t pitch, size, p;
	if (!out || __builtin_add_overflow(e.width, PITCH_ALIGN - 1, &pitch) ||
	    (pitch &= ~(PITCH_ALIGN - 1), __builtin_mul_overflow(pitch, e.height, &size)) ||
	    __builtin_mul_overflow(size, e.depth, &size))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = alloc(c, size, &p);
	if (r == CUDA_SUCCESS)
		*out = (struct pitched){p, pitch, e.width, e.height};
	return r;
}

CUresult impl_hipMalloc3D(struct pitched *out, struct extent e)
{
	return RUN(hipMalloc3D, pitched_alloc(&c, out, e));
}
