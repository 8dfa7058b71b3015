/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The entries of OTHER_APIS: start-up, device facts, streams and copies. The
 * simulated device has no memory and runs nothing: copies and waits succeed.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exports.h"
#include "state.h"

#define DRIVER_VERSION 12040

static CUresult ready(void)
{
	return sim.initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult device(CUdevice dev)
{
	if (!sim.initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	return dev >= 0 && dev < sim.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult impl_cuInit(unsigned flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim.devices)
		return CUDA_ERROR_NO_DEVICE;
	pthread_mutex_lock(&sim.lock);
	bool first = !sim.initialized;
	sim.initialized = true;
	pthread_mutex_unlock(&sim.lock);
	/* The real one needs this time to start; a tracer that attaches at the
	 * load of the library has it to attach all its probes. */
	struct timespec t = {sim.init_ms / 1000, sim.init_ms % 1000 * 1000000L};
	if (first && sim.init_ms)
		nanosleep(&t, NULL);
	if (first)
		observer_load();
	return CUDA_SUCCESS;
}

CUresult impl_cuDriverGetVersion(int *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	 "context is destroyed"},
	{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	 "part or all of the requested memory range is already mapped"},
	{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	 "pointer does not correspond to a registered memory region"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error_text(CUresult code, const char **out, bool name)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].code == code)
			*out = name ? errors[i].name : errors[i].text;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuGetErrorName(CUresult code, const char **out)
{
	return error_text(code, out, true);
}

CUresult impl_cuGetErrorString(CUresult code, const char **out)
{
	return error_text(code, out, false);
}

/* ------------------------------------------------------------------ devices */

CUresult impl_cuDeviceGet(CUdevice *out, int ordinal)
{
	CUresult r = device(ordinal);
	if (r == CUDA_SUCCESS && out)
		*out = ordinal;
	return r;
}

CUresult impl_cuDeviceGetCount(int *out)
{
	if (ready() == CUDA_SUCCESS && out)
		*out = sim.devices;
	return ready();
}

CUresult impl_cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS && name && len > 0)
		snprintf(name, (size_t)len, "Simulated GPU %d", dev);
	return r;
}

/* Of CUdevice_attribute: compute capability 9.0, and what frameworks ask before
 * they allocate. Others are 0, the answer for "no". */
CUresult impl_cuDeviceGetAttribute(int *out, int attribute, CUdevice dev)
{
	CUresult r = device(dev);
	if (r != CUDA_SUCCESS || !out)
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case 75: /* COMPUTE_CAPABILITY_MAJOR */
		*out = 9;
		break;
	case 41:  /* UNIFIED_ADDRESSING */
	case 83:  /* MANAGED_MEMORY */
	case 102: /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
	case 115: /* MEMORY_POOLS_SUPPORTED */
		*out = 1;
		break;
	default:
		*out = 0;
	}
	return CUDA_SUCCESS;
}

CUresult impl_cuDeviceGetUuid(unsigned char *uuid, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS) {
		memcpy(uuid, "simulated-gpu-\0\0", 16);
		uuid[15] = (unsigned char)dev;
	}
	return r;
}

CUresult impl_cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice dev)
{
	return impl_cuDeviceGetUuid(uuid, dev);
}

CUresult impl_cuDeviceGetPCIBusId(char *out, int len, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS && out && len > 0)
		snprintf(out, (size_t)len, "0000:%02X:00.0", dev + 1);
	return r;
}

CUresult impl_cuDeviceTotalMem_v2(size_t *out, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS && out)
		*out = sim.capacity;
	return r;
}

static uint32_t low32(uint64_t n)
{
	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

CUresult impl_cuDeviceTotalMem(uint32_t *out, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS && out)
		*out = low32(sim.capacity);
	return r;
}

CUresult impl_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS) {
		*flags = 0;
		*active = sim.primary[dev].retained > 0;
	}
	return r;
}

CUresult impl_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags)
{
	(void)flags;
	return device(dev);
}

CUresult impl_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags)
{
	return impl_cuDevicePrimaryCtxSetFlags(dev, flags);
}

CUresult impl_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle)
{
	CUresult r = device(dev);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&sim.lock);
	struct pool *p = find(SPACE_POOL, handle);
	if (!p || p->device != dev)
		r = CUDA_ERROR_INVALID_VALUE;
	else
		sim.current_pool[dev] = handle;
	pthread_mutex_unlock(&sim.lock);
	return r;
}

/* ----------------------------------------------------------- contexts, memory */

/* Runs an expression with the lock held and a current context `ctx`. */
#define WITH_CONTEXT(expression)                      \
	({                                            \
		CUresult r_ = ready();                \
		if (r_ == CUDA_SUCCESS) {             \
			pthread_mutex_lock(&sim.lock); \
			struct context *ctx = current(&r_); \
			if (ctx)                      \
				r_ = (expression);    \
			pthread_mutex_unlock(&sim.lock); \
		}                                     \
		r_;                                   \
	})

CUresult impl_cuCtxGetCurrent(CUcontext *out)
{
	if (ready() != CUDA_SUCCESS || !out)
		return out ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_VALUE;
	*out = thread.depth ? thread.stack[thread.depth - 1] : 0;
	return CUDA_SUCCESS;
}

CUresult impl_cuCtxGetApiVersion(CUcontext handle, unsigned *out)
{
	(void)handle;
	if (out)
		*out = 3020; /* of contexts, as the reference's current ABI */
	return ready();
}

static CUresult mem_info(struct context *ctx, uint64_t *left)
{
	*left = sim.capacity - sim.used[ctx->device];
	return CUDA_SUCCESS;
}

CUresult impl_cuMemGetInfo_v2(size_t *left, size_t *total)
{
	uint64_t n = 0;
	CUresult r = WITH_CONTEXT(mem_info(ctx, &n));
	if (r == CUDA_SUCCESS && left)
		*left = n;
	if (r == CUDA_SUCCESS && total)
		*total = sim.capacity;
	return r;
}

CUresult impl_cuMemGetInfo(uint32_t *left, uint32_t *total)
{
	uint64_t n = 0;
	CUresult r = WITH_CONTEXT(mem_info(ctx, &n));
	if (r == CUDA_SUCCESS && left)
		*left = low32(n);
	if (r == CUDA_SUCCESS && total)
		*total = low32(sim.capacity);
	return r;
}

/* Only for the first address of an allocation, unlike the real one. */
CUresult impl_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	pthread_mutex_lock(&sim.lock);
	struct object *o = find(SPACE_MEMORY, p);
	if (o && base)
		*base = o->ptr;
	if (o && size)
		*size = o->size;
	pthread_mutex_unlock(&sim.lock);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* As above: first addresses only. Numbers: CUpointer_attribute, CUmemorytype. */
CUresult impl_cuPointerGetAttribute(void *out, int attribute, CUdeviceptr p)
{
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	struct object *o = find(SPACE_MEMORY, p);
	if (!o)
		o = find(SPACE_HOST, p);
	if (!o)
		o = find(SPACE_REGISTERED, p);
	if (!o || !out)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (attribute == 1) /* CONTEXT */
		*(CUcontext *)out = o->owner->handle;
	else if (attribute == 2) /* MEMORY_TYPE: host 1, device 2 */
		*(unsigned *)out = o->kind == KIND_HOST ? 1 : 2;
	else if (attribute == 3 || (attribute == 4 && o->kind == KIND_HOST)) /* DEVICE_, HOST_POINTER */
		*(uint64_t *)out = p;
	else if (attribute == 8) /* IS_MANAGED */
		*(unsigned *)out = o->kind == KIND_MANAGED;
	else if (attribute == 9) /* DEVICE_ORDINAL */
		*(int *)out = o->device;
	else
		r = CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_unlock(&sim.lock);
	return r;
}

CUresult impl_cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{
	(void)flags;
	if (out)
		*out = (CUdeviceptr)p;
	return out ? ready() : CUDA_ERROR_INVALID_VALUE;
}

/* A pool with allocations goes when they are gone; its number goes now. */
CUresult impl_cuMemPoolDestroy(CUmemoryPool handle)
{
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	struct pool *p = find(SPACE_POOL, handle);
	if (!p || p == &sim.default_pool[p->device]) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else {
		if (sim.current_pool[p->device] == handle)
			sim.current_pool[p->device] = sim.default_pool[p->device].handle;
		forget(SPACE_POOL, handle);
		handle_free(handle);
		free(p);
	}
	pthread_mutex_unlock(&sim.lock);
	return r;
}

CUresult impl_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	(void)handle, (void)keep;
	return ready();
}

CUresult impl_cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value)
{
	(void)handle, (void)attribute, (void)value;
	return ready();
}

/* ------------------------------------------------- streams, events, transfers */

static CUresult stream_create(CUstream *out, struct context *ctx)
{
	struct stream *s = calloc(1, sizeof(*s));
	if (!out || !s) {
		free(s);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*s = (struct stream){.handle = handle_new(), .context = ctx};
	insert(SPACE_STREAM, s->handle, s);
	*out = s->handle;
	return CUDA_SUCCESS;
}

CUresult impl_cuStreamCreate(CUstream *out, unsigned flags)
{
	(void)flags;
	return WITH_CONTEXT(stream_create(out, ctx));
}

CUresult impl_cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	(void)flags, (void)priority;
	return WITH_CONTEXT(stream_create(out, ctx));
}

CUresult impl_cuStreamDestroy_v2(CUstream handle)
{
	pthread_mutex_lock(&sim.lock);
	struct stream *s = find(SPACE_STREAM, handle);
	if (s) {
		forget(SPACE_STREAM, handle);
		handle_free(handle);
		free(s);
	}
	pthread_mutex_unlock(&sim.lock);
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
