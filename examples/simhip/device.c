/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Devices and contexts. HIP needs no start: each thread is on device 0 until it chooses another
 * one. A context is only another name of a device, and to make or end one neither changes the
 * thread's device nor frees memory; to make one current does change it.
 */
#include "exports.h"
#include "../simcuda/state.h"

static void use(uint64_t context)
{
	thread.stack[0] = context;
	thread.depth = 1;
	context_changed();
}

void device_begin(void)
{
	if (!sim.initialized)
		for (int d = 0; d < sim.devices; d++)
			sim.primary[d].retained = 1;
	sim.initialized = true;
	if (!thread.depth)
		use(sim.primary[0].handle);
}

static bool is_device(int device)
{
	return device >= 0 && device < sim.devices;
}

static CUresult set_device(int device)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	use(sim.primary[device].handle);
	return CUDA_SUCCESS;
}

CUresult impl_hipSetDevice(int device)
{
	return RUN(hipSetDevice, set_device(device));
}

static CUresult get_device_count(int *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = sim.devices;
	return CUDA_SUCCESS;
}

CUresult impl_hipGetDeviceCount(int *out)
{
	return RUN(hipGetDeviceCount, get_device_count(out));
}

static CUresult get_device(int *out)
{
	CUresult why = CUDA_ERROR_INVALID_VALUE;
	if (out)
		*out = current(&why)->device;
	return out ? CUDA_SUCCESS : why;
}

CUresult impl_hipGetDevice(int *out)
{
	return RUN(hipGetDevice, get_device(out));
}

static CUresult context_of(CUcontext *out, int device, CUresult unknown)
{
	if (!is_device(device))
		return unknown;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = sim.primary[device].handle;
	return CUDA_SUCCESS;
}

CUresult impl_hipCtxCreate(CUcontext *out, unsigned flags, int device)
{
	(void)flags;
	return RUN(hipCtxCreate, context_of(out, device, CUDA_ERROR_INVALID_VALUE));
}

CUresult impl_hipDevicePrimaryCtxRetain(CUcontext *out, int device)
{
	return RUN(hipDevicePrimaryCtxRetain, context_of(out, device, CUDA_ERROR_INVALID_DEVICE));
}

/* None takes a context from the thread's stack of them: the device stays. */
static CUresult make_current(CUcontext context, CUresult none)
{
	if (!context)
		return none;
	if (!find(SPACE_CONTEXT, context))
		return CUDA_ERROR_INVALID_CONTEXT;
	use(context);
	return CUDA_SUCCESS;
}

CUresult impl_hipCtxSetCurrent(CUcontext context)
{
	return RUN(hipCtxSetCurrent, make_current(context, CUDA_SUCCESS));
}

CUresult impl_hipCtxPushCurrent(CUcontext context)
{
	return RUN(hipCtxPushCurrent, make_current(context, CUDA_ERROR_INVALID_CONTEXT));
}

/* Frees what belongs to the thread's device alone. Managed and pinned memory are all devices'. */
static CUresult reset(struct call *c)
{
	CUresult why;
	struct context *on = current(&why);
	struct object call = {.ptr = on->handle, .owner = on, .device = on->device};
	record(c, JOURNAL_CALL, &call);
	for (int d = 0; d < sim.devices; d++) {
		struct object *all = &sim.primary[d].objects, *next;
		for (struct object *o = all->next; o != all; o = next) {
			next = o->next;
			if (o->device == on->device &&
			    (sim.devices == 1 || (o->kind != KIND_MANAGED && o->kind != KIND_HOST)))
				free_object(c, o, JOURNAL_IMPLICIT);
		}
	}
	return CUDA_SUCCESS;
}

CUresult impl_hipDeviceReset(void)
{
	return RUN(hipDeviceReset, reset(&c));
}

/* ------------------------------------------------------------ not in the journal */

/* Runs an expression with the lock held, and the thread's context in `ctx`. */
#define WITH_CONTEXT(expression) \
	({ \
		CUresult r_ = CUDA_SUCCESS, why_; \
		pthread_mutex_lock(&sim.lock); \
		device_begin(); \
		struct context *ctx = current(&why_); \
		(void)ctx; \
		r_ = (expression); \
		pthread_mutex_unlock(&sim.lock); \
		r_; \
	})

CUresult impl_hipInit(unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult impl_hipMemGetInfo(size_t *available, size_t *total)
{
	if (!available || !total)
		return CUDA_ERROR_INVALID_VALUE;
	*total = sim.capacity;
	return WITH_CONTEXT((*available = sim.capacity - sim.used[ctx->device], CUDA_SUCCESS));
}

CUresult impl_hipDeviceTotalMem(size_t *total, int device)
{
	if (!total || !is_device(device))
		return total ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	*total = sim.capacity;
	return CUDA_SUCCESS;
}

CUresult impl_hipCtxGetCurrent(CUcontext *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return WITH_CONTEXT((*out = ctx->handle, CUDA_SUCCESS));
}

CUresult impl_hipCtxPopCurrent(CUcontext *out)
{
	return out ? impl_hipCtxGetCurrent(out) : CUDA_SUCCESS;
}

CUresult impl_hipCtxDestroy(CUcontext context)
{
	return WITH_CONTEXT(find(SPACE_CONTEXT, context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult impl_hipDevicePrimaryCtxRelease(int device)
{
	return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
