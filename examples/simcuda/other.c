/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The entries of OTHER_APIS: start-up, contexts and streams.
 */
#define _GNU_SOURCE
#include <stdlib.h>
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
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
	 "peer access is already enabled"},
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

/* --------------------------------------------------------- primary contexts */

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

static uint32_t low32(uint64_t n)
{
	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
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

/* ------------------------------------------------- streams */

static CUresult stream_create(CUstream *out, struct context *ctx, unsigned flags, int priority)
{
	struct stream *s = calloc(1, sizeof(*s));
	if (!out || !s) {
		free(s);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*s = (struct stream){.handle = handle_new(), .context = ctx, .flags = flags, .priority = priority};
	insert(SPACE_STREAM, s->handle, s);
	*out = s->handle;
	return CUDA_SUCCESS;
}

CUresult impl_cuStreamCreate(CUstream *out, unsigned flags)
{
	return WITH_CONTEXT(stream_create(out, ctx, flags, 0));
}

/* 0 is the lowest priority; a number outside of the range means its end. */
#define GREATEST_PRIORITY (-5)

CUresult impl_cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	priority = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
	return WITH_CONTEXT(stream_create(out, ctx, flags, priority));
}

CUresult impl_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = GREATEST_PRIORITY;
	return ready();
}

/* Runs an expression with the lock held and the stream `s`, NULL for a default one. */
#define WITH_STREAM(handle, expression)                        \
	({                                                     \
		CUresult r_ = CUDA_ERROR_INVALID_HANDLE;       \
		pthread_mutex_lock(&sim.lock);                 \
		struct stream *s = find(SPACE_STREAM, handle); \
		if (is_stream(handle))                         \
			r_ = (expression);                     \
		pthread_mutex_unlock(&sim.lock);               \
		r_;                                            \
	})

CUresult impl_cuStreamGetPriority(CUstream handle, int *out)
{
	return out ? WITH_STREAM(handle, (*out = s ? s->priority : 0, CUDA_SUCCESS)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuStreamGetFlags(CUstream handle, unsigned *out)
{
	return out ? WITH_STREAM(handle, (*out = s ? s->flags : 0, CUDA_SUCCESS)) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult stream_context(struct stream *s, CUcontext *out)
{
	CUresult why = CUDA_SUCCESS;
	struct context *ctx = s ? s->context : current(&why);
	if (ctx)
		*out = ctx->handle;
	return why;
}

CUresult impl_cuStreamGetCtx(CUstream handle, CUcontext *out)
{
	return out ? WITH_STREAM(handle, stream_context(s, out)) : CUDA_ERROR_INVALID_VALUE;
}

/* Synchronization between processes by a word of memory is not simulated. */
CUresult impl_cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr p, uint32_t value, unsigned flags)
{
	(void)flags;
	return WITH_STREAM(handle, ((void)s, contents_set(p, value, sizeof(value), 1), CUDA_SUCCESS));
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

CUresult impl_cuStreamWriteValue32(CUstream handle, CUdeviceptr p, uint32_t value, unsigned flags)
{
	return impl_cuStreamWriteValue32_v2(handle, p, value, flags);
}

/* One memory on several devices: these devices have no NVLink. */
CUresult impl_cuMulticastCreate(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult impl_cuMulticastAddDevice(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult impl_cuMulticastBindMem(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}
