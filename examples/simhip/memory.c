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
