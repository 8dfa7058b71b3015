/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The context entries of MEMORY_APIS: which device a thread uses, and which
 * memory ends together with its context.
 */
#include <stdlib.h>
#include <time.h>

#include "state.h"

static bool is_device(CUdevice dev)
{
	return dev >= 0 && dev < sim.devices;
}

static struct context *usable(CUcontext handle)
{
	struct context *ctx = find(SPACE_CONTEXT, handle);
	return ctx && (!ctx->primary || ctx->retained) ? ctx : NULL;
}

static CUresult push(CUcontext handle)
{
	thread.known = 0;
	if (!usable(handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (thread.depth == MAX_CONTEXT_STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	thread.stack[thread.depth++] = handle;
	return CUDA_SUCCESS;
}

/* A context as the journal has it: it holds nothing that a caller could know of. */
static void record_context(struct call *c, enum journal_type type, struct context *ctx)
{
	struct object o = {.ptr = ctx->handle, .device = ctx->device, .kind = KIND_CONTEXT,
			   .alloc_seq = ctx->alloc_seq};
	record(c, type, &o);
	ctx->alloc_seq = type == JOURNAL_ALLOC ? sim.seq : 0;
}

static CUresult create(struct call *c, CUcontext *out, CUdevice dev)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct context *ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->handle = handle_new();
	ctx->device = dev;
	ctx->objects.next = ctx->objects.prev = &ctx->objects;
	insert(SPACE_CONTEXT, ctx->handle, ctx);
	CUresult r = push(ctx->handle);
	if (r != CUDA_SUCCESS) {
		forget(SPACE_CONTEXT, ctx->handle);
		handle_free(ctx->handle);
		free(ctx);
		return r;
	}
	*out = c->ptr = ctx->handle;
	record_context(c, JOURNAL_ALLOC, ctx);
	return CUDA_SUCCESS;
}

CUresult impl_cuCtxCreate(CUcontext *out, unsigned flags, CUdevice dev)
{
	(void)flags;
	return RUN(cuCtxCreate, create(&c, out, dev));
}

CUresult impl_cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice dev)
{
	(void)flags;
	return RUN(cuCtxCreate_v2, create(&c, out, dev));
}

CUresult impl_cuCtxCreate_v3(CUcontext *out, void *params, int count, unsigned flags, CUdevice dev)
{
	(void)params, (void)count, (void)flags;
	return RUN(cuCtxCreate_v3, create(&c, out, dev));
}

CUresult impl_cuCtxCreate_v4(CUcontext *out, void *params, unsigned flags, CUdevice dev)
{
	(void)params, (void)flags;
	return RUN(cuCtxCreate_v4, create(&c, out, dev));
}

/* The call's own record comes first: the implicit frees name it as the cause. */
static void end_objects(struct call *c, struct context *ctx)
{
	struct object call = {.ptr = ctx->handle, .owner = ctx, .device = ctx->device};
	record(c, JOURNAL_CALL, &call);
	free_all(c, ctx);
	if (ctx->alloc_seq)
		record_context(c, JOURNAL_FREE, ctx);
}

static CUresult destroy(struct call *c, CUcontext handle)
{
	struct context *ctx = find(SPACE_CONTEXT, handle);
	c->ptr = handle;
	if (!ctx || ctx->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	end_objects(c, ctx);
	/* Popped where it is on top of the caller's stack. Elsewhere, and in
	 * other threads, its number stays and is refused when used. */
	if (thread.depth && thread.stack[thread.depth - 1] == handle)
		thread.depth--;
	context_changed();
	forget(SPACE_CONTEXT, handle);
	handle_free(handle);
	free(ctx);
	return CUDA_SUCCESS;
}

CUresult impl_cuCtxDestroy(CUcontext ctx)
{
	return RUN(cuCtxDestroy, destroy(&c, ctx));
}

CUresult impl_cuCtxDestroy_v2(CUcontext ctx)
{
	return RUN(cuCtxDestroy_v2, destroy(&c, ctx));
}

/* A primary context may be made current before anybody has retained it, and is of use
 * from then on. */
static CUresult set_current(struct call *c, CUcontext handle)
{
	struct context *ctx = find(SPACE_CONTEXT, handle);
	c->ptr = handle;
	thread.known = 0;
	if (!handle) {
		if (thread.depth)
			thread.depth--;
		return CUDA_SUCCESS;
	}
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!thread.depth)
		thread.depth++;
	thread.stack[thread.depth - 1] = handle;
	return CUDA_SUCCESS;
}

CUresult impl_cuCtxSetCurrent(CUcontext ctx)
{
	return RUN(cuCtxSetCurrent, set_current(&c, ctx));
}

CUresult impl_cuCtxPushCurrent(CUcontext ctx)
{
	return RUN(cuCtxPushCurrent, push(ctx));
}

CUresult impl_cuCtxPushCurrent_v2(CUcontext ctx)
{
	return RUN(cuCtxPushCurrent_v2, push(ctx));
}

static CUresult pop(struct call *c, CUcontext *out)
{
	if (!thread.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	thread.known = 0;
	c->ptr = thread.stack[--thread.depth];
	if (out)
		*out = c->ptr;
	return CUDA_SUCCESS;
}

CUresult impl_cuCtxPopCurrent(CUcontext *out)
{
	return RUN(cuCtxPopCurrent, pop(&c, out));
}

CUresult impl_cuCtxPopCurrent_v2(CUcontext *out)
{
	return RUN(cuCtxPopCurrent_v2, pop(&c, out));
}

static CUresult get_device(CUdevice *out)
{
	CUresult why;
	struct context *ctx = current(&why);
	if (!ctx)
		return why;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = thread.device = ctx->device;
	thread.known = sim.contexts;
	return CUDA_SUCCESS;
}

/* The runtime calls this thousands of times a second: it takes a few nanoseconds, without
 * the lock, as in the real driver. */
CUresult impl_cuCtxGetDevice(CUdevice *out)
{
	if (out && !sim.every_call && thread.known == __atomic_load_n(&sim.contexts, __ATOMIC_ACQUIRE)) {
		*out = thread.device;
		return CUDA_SUCCESS;
	}
	return RUN(cuCtxGetDevice, get_device(out));
}

static CUresult primary_retain(struct call *c, CUcontext *out, CUdevice dev)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct context *ctx = &sim.primary[dev];
	ctx->retained++;
	*out = c->ptr = ctx->handle;
	c->device = dev;
	if (ctx->alloc_seq)
		return CUDA_SUCCESS;
	/* The real driver takes longer, tens of milliseconds at least. */
	struct timespec t = {sim.context_ms / 1000, sim.context_ms % 1000 * 1000000L};
	nanosleep(&t, NULL);
	record_context(c, JOURNAL_ALLOC, ctx);
	return CUDA_SUCCESS;
}

CUresult impl_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	return RUN(cuDevicePrimaryCtxRetain, primary_retain(&c, out, dev));
}

/* Does not pop the context from any stack, unlike cuCtxDestroy. */
static CUresult primary_release(struct call *c, CUdevice dev)
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	c->device = dev;
	if (!sim.primary[dev].retained)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--sim.primary[dev].retained == 0) {
		end_objects(c, &sim.primary[dev]);
		context_changed();
	}
	return CUDA_SUCCESS;
}

CUresult impl_cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return RUN(cuDevicePrimaryCtxRelease, primary_release(&c, dev));
}

CUresult impl_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return RUN(cuDevicePrimaryCtxRelease_v2, primary_release(&c, dev));
}

/* Frees the context's memory; holders of a reference must still release it, and may
 * continue to use it. */
static CUresult primary_reset(struct call *c, CUdevice dev)
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	end_objects(c, &sim.primary[dev]);
	return CUDA_SUCCESS;
}

CUresult impl_cuDevicePrimaryCtxReset(CUdevice dev)
{
	return RUN(cuDevicePrimaryCtxReset, primary_reset(&c, dev));
}

CUresult impl_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return RUN(cuDevicePrimaryCtxReset_v2, primary_reset(&c, dev));
}
