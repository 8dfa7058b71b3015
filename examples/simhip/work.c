/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launches, copies and sets in the forms that the CUDA driver does not have: kernels by the
 * program's handle of them, grids as dim3 or in work items, copies with a kind.
 */
#include <stdlib.h>

#include "../simcuda/launch.h"
#include "exports.h"

#define SPT(symbol, parameters, expression, ...) \
	FORMS(symbol, _spt, parameters, expression, __VA_ARGS__)

/* ----------------------------------------------------------------------- launches */

typedef struct {
	unsigned x, y, z;
} dim3;

static CUresult launch_host(struct work *w)
{
	CUresult r = launch(w);
	return r == CUDA_ERROR_INVALID_HANDLE && !w->kernel ? 98
							    : r; /* hipErrorInvalidDeviceFunction */
}

#define DIM3 .grid = {g.x, g.y, g.z}, .block = {b.x, b.y, b.z}, .shared_bytes = (uint32_t)shared
#define HOST_PARAMETERS (uint64_t f, dim3 g, dim3 b, void **args, size_t shared, CUstream s)
SPT(hipLaunchKernel, HOST_PARAMETERS, launch_host(&w), .function = f, .stream = s, DIM3)
ONLY(hipExtLaunchKernel, HOST_PARAMETERS, launch_host(&w), .function = f, .stream = s, DIM3)
SPT(hipLaunchCooperativeKernel,
    (uint64_t f, dim3 g, dim3 b, void **args, unsigned shared, CUstream s), launch_host(&w),
    .function = f, .stream = s, DIM3)

typedef struct {
	dim3 grid, block;
	size_t shared;
	CUstream stream;
	void *attributes;
	unsigned count;
} hipLaunchConfig_t; /* as HIP_LAUNCH_CONFIG, whose shared memory has 32 bits */

#define CONFIG \
	.function = f, .stream = config->stream, \
	.grid = {config->grid.x, config->grid.y, config->grid.z}, \
	.block = {config->block.x, config->block.y, config->block.z}, \
	.shared_bytes = (uint32_t)config->shared
ONLY(hipLaunchKernelExC, (const hipLaunchConfig_t *config, uint64_t f), launch_host(&w), CONFIG)
ONLY(hipDrvLaunchKernelEx, (const hipLaunchConfig_t *config, uint64_t f), launch(&w), CONFIG)

#define BLOCKS(items, block) ((block) ? ((items) + (block) - 1) / (block) : 0)
#define ITEMS \
	.grid = {BLOCKS(x, bx), BLOCKS(y, by), BLOCKS(z, bz)}, .block = {bx, by, bz}, \
	.shared_bytes = (uint32_t)shared
#define ITEM_PARAMETERS \
	(uint64_t f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, \
	 size_t shared, CUstream s)
ONLY(hipExtModuleLaunchKernel, ITEM_PARAMETERS, launch(&w), .function = f, .stream = s, ITEMS)
ONLY(hipHccModuleLaunchKernel, ITEM_PARAMETERS, launch(&w), .function = f, .stream = s, ITEMS)

typedef struct {
	uint64_t function;
	dim3 grid, block;
	void **args;
	size_t shared;
	CUstream stream;
} hipLaunchParams;

#define MULTI(symbol) \
	ONLY(symbol, (const hipLaunchParams *p, int n), \
	     n > 0 ? launch_host(&w) : CUDA_ERROR_INVALID_VALUE, .function = p->function, \
	     .stream = p->stream, .grid = {p->grid.x, p->grid.y, p->grid.z}, \
	     .block = {p->block.x, p->block.y, p->block.z}, .shared_bytes = (uint32_t)p->shared)
MULTI(hipLaunchCooperativeKernelMultiDevice)
MULTI(hipExtLaunchMultiKernelMultiDevice)

/* It has no result: a failure that is injected leaves it alone. */
void impl___hipRegisterFunction(void *modules, uint64_t handle, char *function, const char *name)
{
	struct call c;
	struct work w = {.function = handle};
	work_begin(&c, &w, API___hipRegisterFunction);
	c.injected = false;
	function_register(&w, handle, name);
	end_work(&c, &w, CUDA_SUCCESS);
}

/* Code for the GPU is not read. */
void **impl___hipRegisterFatBinary(const void *data)
{
	static void *modules;

	return &modules;
}

void impl___hipUnregisterFatBinary(void **modules)
{
}

/* What a launch with <<<>>> passes on to the kernel's host function. */
static _Thread_local struct {
	dim3 grid, block;
	size_t shared;
	CUstream stream;
} configuration;

CUresult impl___hipPushCallConfiguration(dim3 g, dim3 b, size_t shared, CUstream s)
{
	configuration.grid = g;
	configuration.block = b;
	configuration.shared = shared;
	configuration.stream = s;
	return CUDA_SUCCESS;
}

CUresult impl___hipPopCallConfiguration(dim3 *g, dim3 *b, size_t *shared, CUstream *s)
{
	*g = configuration.grid;
	*b = configuration.block;
	*shared = configuration.shared;
	*s = configuration.stream;
	return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ copies and sets */

/* hipMemcpyKind */
static uint8_t direction(unsigned kind)
{
	static const uint8_t directions[] = {COPY_HTOH, COPY_HTOD, COPY_DTOH, COPY_DTOD};
	return kind < 4 ? directions[kind] : kind == 1024 ? COPY_DTOD : COPY_ANY;
}

#define TO_FROM uint64_t to, uint64_t from, size_t n
#define COPY .bytes = n, .direction = direction(kind)
SPT(hipMemcpy, (TO_FROM, unsigned kind), copy(&w, to, from), COPY)
SPT(hipMemcpyAsync, (TO_FROM, unsigned kind, CUstream s), copy(&w, to, from), COPY, .stream = s)
ONLY(hipMemcpyWithStream, (TO_FROM, unsigned kind, CUstream s), copy(&w, to, from), COPY,
     .stream = s)

/* Symbols and arrays have no contents; nor do copies in two and three dimensions. */
#define SYMBOL(name) \
	SPT(hipMemcpy##name, (TO_FROM, size_t at, unsigned kind), submit(&w), COPY) \
	SPT(hipMemcpy##name##Async, (TO_FROM, size_t at, unsigned kind, CUstream s), submit(&w), \
	    COPY, .stream = s)
SYMBOL(ToSymbol)
SYMBOL(FromSymbol)
ONLY(hipMemcpyToArray, (uint64_t to, size_t x, size_t y, uint64_t from, size_t n, unsigned kind),
     submit(&w), COPY)
SPT(hipMemcpyFromArray, (uint64_t to, uint64_t from, size_t x, size_t y, size_t n, unsigned kind),
    submit(&w), COPY)

#define COPY_2D .bytes = width * height, .direction = direction(kind)
#define LINEAR_2D \
	uint64_t to, size_t dpitch, uint64_t from, size_t spitch, size_t width, size_t height, \
		unsigned kind
SPT(hipMemcpy2D, (LINEAR_2D), submit(&w), COPY_2D)
SPT(hipMemcpy2DAsync, (LINEAR_2D, CUstream s), submit(&w), COPY_2D, .stream = s)
#define ARRAY_2D \
	uint64_t to, size_t a, uint64_t b, uint64_t c_, size_t d, size_t width, size_t height, \
		unsigned kind
SPT(hipMemcpy2DToArray, (ARRAY_2D), submit(&w), COPY_2D)
SPT(hipMemcpy2DToArrayAsync, (ARRAY_2D, CUstream s), submit(&w), COPY_2D, .stream = s)
SPT(hipMemcpy2DFromArray, (ARRAY_2D), submit(&w), COPY_2D)
SPT(hipMemcpy2DFromArrayAsync, (ARRAY_2D, CUstream s), submit(&w), COPY_2D, .stream = s)
ONLY(hipMemcpy2DArrayToArray,
     (uint64_t to, size_t x, size_t y, uint64_t from, size_t fx, size_t fy, size_t width,
      size_t height, unsigned kind),
     submit(&w), COPY_2D)

typedef struct {
	uint64_t sarray;
	size_t spos[3];
	uint64_t sptr[4];
	uint64_t darray;
	size_t dpos[3];
	uint64_t dptr[4];
	size_t width, height, depth;
	unsigned kind;
} hipMemcpy3DParms;
_Static_assert(sizeof(hipMemcpy3DParms) == 160, "as in driver_types.h");

#define COPY_3D .bytes = p->width * p->height * p->depth, .direction = direction(p->kind)
SPT(hipMemcpy3D, (const hipMemcpy3DParms *p), submit(&w), COPY_3D)
SPT(hipMemcpy3DAsync, (const hipMemcpy3DParms *p, CUstream s), submit(&w), COPY_3D, .stream = s)

SPT(hipMemset, (uint64_t p, int v, size_t n), set(&w, p, (unsigned)v, 1, n), .bytes = n)
SPT(hipMemsetAsync, (uint64_t p, int v, size_t n, CUstream s), set(&w, p, (unsigned)v, 1, n),
    .bytes = n, .stream = s)
#define SET_2D uint64_t p, size_t pitch, int v, size_t width, size_t height
SPT(hipMemset2D, (SET_2D), submit(&w), .bytes = width * height)
SPT(hipMemset2DAsync, (SET_2D, CUstream s), submit(&w), .bytes = width * height, .stream = s)

typedef struct {
	uint64_t p;
	size_t pitch, x, y;
} hipPitchedPtr;
typedef struct {
	size_t width, height, depth;
} hipExtent;

SPT(hipMemset3D, (hipPitchedPtr p, int v, hipExtent e), submit(&w),
    .bytes = e.width * e.height * e.depth)
SPT(hipMemset3DAsync, (hipPitchedPtr p, int v, hipExtent e, CUstream s), submit(&w),
    .bytes = e.width * e.height * e.depth, .stream = s)

/* ------------------------------------------------------------- streams and events */

CUresult impl_hipStreamCreateWithFlags(CUstream *out, unsigned flags)
{
	struct stream *s = calloc(1, sizeof(*s));
	if (!out || !s) {
		free(s);
		return CUDA_ERROR_INVALID_VALUE;
	}
	CUresult why;
	pthread_mutex_lock(&sim.lock);
	device_begin();
	*s = (struct stream){.handle = handle_new(), .context = current(&why), .flags = flags};
	*out = s->handle;
	insert(SPACE_STREAM, s->handle, s);
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult impl_hipStreamCreate(CUstream *out)
{
	return impl_hipStreamCreateWithFlags(out, 0);
}

CUresult impl_hipStreamDestroy(CUstream handle)
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

CUresult impl_hipEventCreateWithFlags(CUevent *out, unsigned flags);

CUresult impl_hipEventCreate(CUevent *out)
{
	return impl_hipEventCreateWithFlags(out, 0);
}
