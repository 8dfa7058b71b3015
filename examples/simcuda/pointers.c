/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Properties of addresses: cuPointerGetAttribute and similar calls, host memory as the
 * device sees it, peers, and memory and events of other processes, which are only
 * numbers.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "exports.h"
#include "state.h"

/* The allocation at the address; the lock is held. */
static struct object *object_at(uint64_t p)
{
	struct object *o = memory_at(p);
	if (!o)
		o = vmm_at(p, &(struct mapped){0});
	return o ? o : host_at(p);
}

CUresult impl_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	pthread_mutex_lock(&sim.lock);
	struct object *o = memory_at(p);
	struct mapped at = {0};
	if (o)
		at = (struct mapped){o->ptr, o->size};
	else
		o = vmm_at(p, &at);
	if (o && base)
		*base = at.address;
	if (o && size)
		*size = at.size;
	pthread_mutex_unlock(&sim.lock);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum pointer_attribute { /* CUpointer_attribute */
	POINTER_CONTEXT = 1,
	POINTER_MEMORY_TYPE = 2, /* host 1, device 2 */
	POINTER_DEVICE = 3,
	POINTER_HOST = 4,
	POINTER_BUFFER_ID = 7,
	POINTER_IS_MANAGED = 8,
	POINTER_ORDINAL = 9,
	POINTER_IS_IPC_CAPABLE = 10,
	POINTER_RANGE_START = 11,
	POINTER_RANGE_SIZE = 12,
	POINTER_IS_MAPPED = 13,
	POINTER_POOL = 17,
	POINTER_LAST = 17,
};

/* Bytes of an attribute; 0: there is none of this number. */
static size_t attribute_bytes(int attribute)
{
	switch (attribute) {
	case POINTER_MEMORY_TYPE:
	case POINTER_ORDINAL:
	case 6: /* SYNC_MEMOPS: a bool that is an int, as the reference has it */
	case POINTER_IS_MANAGED:
	case POINTER_IS_IPC_CAPABLE:
	case POINTER_IS_MAPPED:
	case 15: /* IS_GPU_DIRECT_RDMA_CAPABLE */
	case 16: /* ACCESS_FLAGS */
		return 4;
	}
	return attribute >= 1 && attribute <= POINTER_LAST ? 8 : 0;
}

static uint64_t attribute_of(const struct object *o, int attribute, uint64_t p)
{
	bool host = o->kind == KIND_HOST;
	switch (attribute) {
	case POINTER_CONTEXT:
		return o->owner ? o->owner->handle : 0;
	case POINTER_MEMORY_TYPE:
		return host ? 1 : 2;
	case POINTER_DEVICE:
		return p;
	case POINTER_HOST:
		return host || o->kind == KIND_MANAGED ? p : 0;
	case POINTER_BUFFER_ID:
		return o->alloc_seq;
	case POINTER_IS_MANAGED:
		return o->kind == KIND_MANAGED;
	case POINTER_ORDINAL:
		return (uint32_t)o->device;
	case POINTER_IS_IPC_CAPABLE:
		return o->kind == KIND_DEVICE;
	case POINTER_RANGE_START:
		return o->ptr;
	case POINTER_RANGE_SIZE:
		return o->size;
	case POINTER_IS_MAPPED:
		return 1;
	case POINTER_POOL:
		return o->pool;
	}
	return 0;
}

CUresult impl_cuPointerGetAttribute(void *out, int attribute, CUdeviceptr p)
{
	size_t bytes = attribute_bytes(attribute);
	if (!out || !bytes)
		return out ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	struct object *o = object_at(p);
	uint64_t value = o ? attribute_of(o, attribute, p) : 0;
	pthread_mutex_unlock(&sim.lock);
	if (!o || (attribute == POINTER_HOST && !value))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(out, &value, bytes);
	return CUDA_SUCCESS;
}

/* Unlike the above, memory that is not the driver's is no error: all is 0, the device −2. */
CUresult impl_cuPointerGetAttributes(unsigned n, const int *attributes, void **out, CUdeviceptr p)
{
	if (!n || !attributes || !out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	struct object *o = object_at(p);
	for (unsigned i = 0; i < n; i++) {
		uint64_t value = o ? attribute_of(o, attributes[i], p)
				   : attributes[i] == POINTER_ORDINAL ? (uint64_t)-2 : 0;
		memcpy(out[i], &value, attribute_bytes(attributes[i]));
	}
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult impl_cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{
	(void)flags;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUdeviceptr)p;
	return sim.initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult impl_cuMemHostGetFlags(unsigned *out, void *p)
{
	pthread_mutex_lock(&sim.lock);
	bool found = host_at((uint64_t)p) != NULL;
	pthread_mutex_unlock(&sim.lock);
	if (!found || !out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = 0;
	return CUDA_SUCCESS;
}

/* All memory is of one process, and every device reaches it. */
CUresult impl_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	pthread_mutex_lock(&sim.lock);
	struct context *ctx = find(SPACE_CONTEXT, peer);
	pthread_mutex_unlock(&sim.lock);
	return !ctx ? CUDA_ERROR_INVALID_CONTEXT : flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ------------------------------------------------------------- other processes */

/* Content of a handle of 64 bytes. */
struct ipc_handle {
	uint64_t ptr, size;
	int32_t device, pid;
	char unused[40];
};
_Static_assert(sizeof(struct ipc_handle) == 64, "CUipcMemHandle");

CUresult impl_cuIpcGetMemHandle(struct ipc_handle *out, CUdeviceptr p)
{
	pthread_mutex_lock(&sim.lock);
	struct object *o = memory_at(p);
	if (o && out)
		*out = (struct ipc_handle){.ptr = o->ptr, .size = o->size, .device = o->device, .pid = getpid()};
	pthread_mutex_unlock(&sim.lock);
	return o && out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* An address for another process's memory, which is neither held nor visible here. */
CUresult impl_cuIpcOpenMemHandle_v2(CUdeviceptr *out, struct ipc_handle handle, unsigned flags)
{
	CUresult why = CUDA_ERROR_INVALID_VALUE;
	(void)flags;
	if (!out || !handle.size)
		return why;
	pthread_mutex_lock(&sim.lock);
	struct context *ctx = current(&why);
	struct object *o = ctx ? address_new(handle.size, false) : NULL;
	if (o) {
		o->owner = ctx;
		o->space = SPACE_IPC;
		o->kind = KIND_DEVICE;
		o->size = handle.size;
		o->device = ctx->device;
		insert(SPACE_IPC, o->ptr, o);
		*out = o->ptr;
		why = CUDA_SUCCESS;
	} else if (ctx) {
		why = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim.lock);
	return why;
}

CUresult impl_cuIpcCloseMemHandle(CUdeviceptr p)
{
	pthread_mutex_lock(&sim.lock);
	struct object *o = find(SPACE_IPC, p);
	if (o) {
		forget(SPACE_IPC, p);
		address_free(o);
	}
	pthread_mutex_unlock(&sim.lock);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuIpcGetEventHandle(struct ipc_handle *out, CUevent event)
{
	pthread_mutex_lock(&sim.lock);
	bool found = find(SPACE_EVENT, event) != NULL;
	pthread_mutex_unlock(&sim.lock);
	if (!found || !out)
		return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*out = (struct ipc_handle){.ptr = event, .pid = getpid()};
	return CUDA_SUCCESS;
}

/* A separate event: records of the other process are not visible here. */
CUresult impl_cuEventCreate(CUevent *out, unsigned flags);

CUresult impl_cuIpcOpenEventHandle(CUevent *out, struct ipc_handle handle)
{
	(void)handle;
	return impl_cuEventCreate(out, 0);
}
