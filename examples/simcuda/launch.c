/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The entries of DRIVER_CALLS that load and name kernels, launch them, copy, set and
 * wait. Nothing is computed; linear copies and sets happen at once. What a call was asked
 * for is in its record.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "later.h"
#include "launch.h"

/* Which default stream a function means by 0, from the table; 0: it has no stream. */
static uint64_t default_stream(unsigned api)
{
	static const struct {
		uint8_t op, flags, b;
	} calls[] = {
#define X(symbol, op, detail, flags, a, b) [API_##symbol] = {op, flags, b},
		DRIVER_CALLS(X)
#undef X
	};
	unsigned op = calls[api].op;
	bool streams = op < CALL_WAIT || (op < CALL_LOAD && calls[api].b != CALL_NONE);
	return !streams ? 0 : calls[api].flags & CALL_PER_THREAD ? 2 : 1;
}

static uint64_t monotonic_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

CUresult work_begin(struct call *c, struct work *w, unsigned api)
{
	w->start_ns = monotonic_ns();
	if (!w->stream)
		w->stream = default_stream(api);
	return begin(c, WORK_API(api));
}

/* ------------------------------------------------------ modules, functions, names */

struct module {
	uint64_t handle;
	struct function *functions;
	struct module *of_device[MAX_DEVICES]; /* a library's, where it was asked for */
};

struct function {
	uint64_t handle, hash;
	struct module *module;
	struct function *next;
	char *name;
};

static uint64_t name_hash(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 0x100000001b3ull;
	return hash;
}

static CUresult module_load(uint64_t *out)
{
	struct module *m = calloc(1, sizeof(*m));
	if (!out || !m) {
		free(m);
		return CUDA_ERROR_INVALID_VALUE;
	}
	m->handle = handle_new();
	insert(SPACE_MODULE, m->handle, m);
	*out = m->handle;
	return CUDA_SUCCESS;
}

static CUresult module_unload(uint64_t handle)
{
	struct module *m = find(SPACE_MODULE, handle);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int d = 0; d < MAX_DEVICES; d++)
		if (m->of_device[d])
			module_unload(m->of_device[d]->handle);
	while (m->functions) {
		struct function *f = m->functions;
		m->functions = f->next;
		forget(SPACE_FUNCTION, f->handle);
		handle_free(f->handle);
		free(f->name);
		free(f);
	}
	forget(SPACE_MODULE, handle);
	handle_free(handle);
	free(m);
	return CUDA_SUCCESS;
}

/* A library's module in the current context. */
static CUresult module_of(uint64_t *out, uint64_t library)
{
	CUresult why = CUDA_ERROR_INVALID_VALUE;
	struct context *ctx = current(&why);
	struct module *m = find(SPACE_MODULE, library);
	if (!out || !m || !ctx)
		return !out ? CUDA_ERROR_INVALID_VALUE : m ? why : CUDA_ERROR_INVALID_HANDLE;
	uint64_t handle;
	if (!m->of_device[ctx->device] && (why = module_load(&handle)) == CUDA_SUCCESS)
		m->of_device[ctx->device] = find(SPACE_MODULE, handle);
	if (m->of_device[ctx->device])
		*out = m->of_device[ctx->device]->handle;
	return m->of_device[ctx->device] ? CUDA_SUCCESS : why;
}

CUresult impl_cuLibraryGetModule(uint64_t *out, uint64_t library)
{
	pthread_mutex_lock(&sim.lock);
	CUresult r = module_of(out, library);
	pthread_mutex_unlock(&sim.lock);
	return r;
}

/* A module has every kernel that is asked for. Always the same handle for a name. */
static CUresult function_get(struct work *w, uint64_t *out, uint64_t module, const char *name)
{
	struct module *m = find(SPACE_MODULE, module);
	if (!out || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	w->name = name_hash(name);
	struct function *f = m->functions;
	while (f && (f->hash != w->name || strcmp(f->name, name)))
		f = f->next;
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f || !(f->name = strdup(name))) {
			free(f);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		f->handle = handle_new();
		f->hash = w->name;
		f->module = m;
		f->next = m->functions;
		m->functions = f;
		insert(SPACE_FUNCTION, f->handle, f);
		journal_kernel(name);
	}
	*out = w->function = f->handle;
	return CUDA_SUCCESS;
}

/* A kernel's function in the current context: another handle for the same name. */
static CUresult function_from(struct work *w, uint64_t *out, uint64_t kernel)
{
	struct function *k = find(SPACE_FUNCTION, kernel), *f;
	if (!out || !k)
		return out ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	f = calloc(1, sizeof(*f));
	if (!f || !(f->name = strdup(k->name))) {
		free(f);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	f->handle = handle_new();
	f->hash = w->name = k->hash;
	f->module = k->module;
	f->next = k->module->functions;
	k->module->functions = f;
	insert(SPACE_FUNCTION, f->handle, f);
	*out = w->function = f->handle;
	return CUDA_SUCCESS;
}

static CUresult name_of(struct work *w, const char **out, uint64_t handle)
{
	struct function *f = find(SPACE_FUNCTION, handle);
	if (!out || !f)
		return out ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	*out = f->name;
	w->name = f->hash;
	return CUDA_SUCCESS;
}

static CUresult link_complete(uint64_t state, void **cubin, size_t *size)
{
	static char program[] = "\177ELF";
	if (!state || !cubin || !size)
		return CUDA_ERROR_INVALID_VALUE;
	*cubin = program;
	*size = sizeof(program);
	return CUDA_SUCCESS;
}

ONLY(cuModuleLoad, (uint64_t *out, const char *path), module_load(path ? out : NULL))
ONLY(cuModuleLoadData, (uint64_t *out, const void *image), module_load(image ? out : NULL))
ONLY(cuModuleLoadDataEx, (uint64_t *out, const void *image), module_load(image ? out : NULL))
ONLY(cuModuleLoadFatBinary, (uint64_t *out, const void *image), module_load(image ? out : NULL))
ONLY(cuLibraryLoadData, (uint64_t *out, const void *image), module_load(image ? out : NULL))
ONLY(cuLibraryLoadFromFile, (uint64_t *out, const char *path), module_load(path ? out : NULL))
ONLY(cuLinkComplete, (uint64_t state, void **cubin, size_t *size),
     link_complete(state, cubin, size))
ONLY(cuModuleUnload, (uint64_t module), module_unload(module))
ONLY(cuLibraryUnload, (uint64_t library), module_unload(library))
ONLY(cuModuleGetFunction, (uint64_t *out, uint64_t module, const char *name),
     function_get(&w, out, module, name))
ONLY(cuLibraryGetKernel, (uint64_t *out, uint64_t library, const char *name),
     function_get(&w, out, library, name))
ONLY(cuLibraryGetUnifiedFunction, (uint64_t *out, uint64_t library, const char *name),
     function_get(&w, out, library, name))
ONLY(cuKernelGetFunction, (uint64_t *out, uint64_t kernel), function_from(&w, out, kernel))
ONLY(cuFuncGetName, (const char **out, uint64_t function), name_of(&w, out, function))
ONLY(cuKernelGetName, (const char **out, uint64_t kernel), name_of(&w, out, kernel))

/* ----------------------------------------------------------------------- launches */

static CUresult launch(struct work *w)
{
	struct function *f = find(SPACE_FUNCTION, w->function);
	for (int i = 0; i < 3; i++)
		if (!w->grid[i] || !w->block[i])
			return CUDA_ERROR_INVALID_VALUE;
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	w->name = f->hash;
	w->kernel = f->name;
	return submit(w);
}

#define SHAPE .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared_bytes = shared

#define LAUNCH_PARAMETERS                                                            \
	(uint64_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
	 unsigned bz, unsigned shared, CUstream s)
PTSZ(cuLaunchKernel, LAUNCH_PARAMETERS, launch(&w), .function = f, .stream = s, SHAPE)
PTSZ(cuLaunchCooperativeKernel, LAUNCH_PARAMETERS, launch(&w), .function = f, .stream = s, SHAPE)

typedef struct {
	unsigned gx, gy, gz, bx, by, bz, shared;
	CUstream stream;
	void *attributes;
	unsigned count;
} CUlaunchConfig;

PTSZ(cuLaunchKernelEx, (const CUlaunchConfig *g, uint64_t f), launch(&w), .function = f,
     .stream = g->stream, .grid = {g->gx, g->gy, g->gz}, .block = {g->bx, g->by, g->bz},
     .shared_bytes = g->shared)

typedef struct {
	uint64_t function;
	unsigned gx, gy, gz, bx, by, bz, shared;
	CUstream stream;
	void **parameters;
} CUDA_LAUNCH_PARAMS;

ONLY(cuLaunchCooperativeKernelMultiDevice, (const CUDA_LAUNCH_PARAMS *p, unsigned n),
     n ? launch(&w) : CUDA_ERROR_INVALID_VALUE, .function = p->function, .stream = p->stream,
     .grid = {p->gx, p->gy, p->gz}, .block = {p->bx, p->by, p->bz}, .shared_bytes = p->shared)

/* Tests give numbers for functions: below this address nothing can be mapped. */
#define FIRST_ADDRESS 65536

struct host_function {
	void (*function)(void *);
	void *arg;
};

static bool call_host(void *arg)
{
	struct host_function *h = arg;
	h->function(h->arg);
	free(h);
	return true;
}

static CUresult launch_host(struct work *w, void (*function)(void *), void *arg)
{
	CUresult r = function ? submit(w) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS || w->captured || (uint64_t)function < FIRST_ADDRESS)
		return r;
	struct host_function *h = malloc(sizeof(*h));
	if (!h)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*h = (struct host_function){function, arg};
	/* Behind what is on the stream; at once if there is nothing. */
	pthread_mutex_unlock(&sim.lock);
	if (later_stream(w->stream, false))
		call_host(h);
	else
		later_add(w->stream, call_host, h);
	pthread_mutex_lock(&sim.lock);
	return r;
}

PTSZ(cuLaunchHostFunc, (CUstream s, void (*f)(void *), void *arg), launch_host(&w, f, arg),
     .stream = s, .function = (uint64_t)f)

/* ------------------------------------------------------------------ copies and sets */

/* What is captured has no effect, also later: a graph is a number of nodes. */
static CUresult copy(struct work *w, uint64_t to, uint64_t from)
{
	CUresult r = submit(w);
	if (r == CUDA_SUCCESS && !w->captured)
		contents_copy(to, from, w->bytes);
	return r;
}

static CUresult set(struct work *w, uint64_t p, unsigned value, unsigned element_bytes, uint64_t n)
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
COPY_PTDS(cuMemcpyDtoH_v2, TO_FROM, COPY_DTOH)
COPY_PTDS(cuMemcpyDtoD_v2, TO_FROM, COPY_DTOD)
ARRAY_PTDS(cuMemcpyHtoA_v2, TO_AT_FROM, COPY_HTOD)
ARRAY_PTDS(cuMemcpyAtoH_v2, TO_FROM_AT, COPY_DTOH)
ARRAY_PTDS(cuMemcpyDtoA_v2, TO_AT_FROM, COPY_DTOD)
ARRAY_PTDS(cuMemcpyAtoD_v2, TO_FROM_AT, COPY_DTOD)
ARRAY_PTDS(cuMemcpyAtoA_v2, (uint64_t to, size_t at, uint64_t from, size_t where, size_t n), COPY_DTOD)
COPY_PTDS(cuMemcpyPeer, (uint64_t to, CUcontext t, uint64_t from, CUcontext f, size_t n), COPY_PTOP)

COPY_PTSZ(cuMemcpyAsync, (uint64_t to, uint64_t from, size_t n, CUstream s), COPY_ANY)
COPY_PTSZ(cuMemcpyHtoDAsync_v2, (uint64_t to, uint64_t from, size_t n, CUstream s), COPY_HTOD)
COPY_PTSZ(cuMemcpyDtoHAsync_v2, (uint64_t to, uint64_t from, size_t n, CUstream s), COPY_DTOH)
COPY_PTSZ(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t n, CUstream s), COPY_DTOD)
ARRAY_PTSZ(cuMemcpyHtoAAsync_v2, (uint64_t to, size_t at, uint64_t from, size_t n, CUstream s), COPY_HTOD)
ARRAY_PTSZ(cuMemcpyAtoHAsync_v2, (uint64_t to, uint64_t from, size_t at, size_t n, CUstream s), COPY_DTOH)
COPY_PTSZ(cuMemcpyPeerAsync,
	  (uint64_t to, CUcontext t, uint64_t from, CUcontext f, size_t n, CUstream s), COPY_PTOP)

/* CUmemorytype */
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };

static uint8_t direction(uint32_t from, uint32_t to)
{
	if (from == MEMORY_UNIFIED || to == MEMORY_UNIFIED)
		return COPY_ANY;
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
	uint64_t sd, sa, scontext;
	size_t spitch, sheight, dx, dy, dz, dlod;
	uint32_t to;
	void *dh;
	uint64_t dd, da, dcontext;
	size_t dpitch, dheight, width, height, depth;
} CUDA_MEMCPY3D;
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "as in cuda.h");

#define COPY_3D submit(&w), .bytes = d->width * d->height * d->depth
PTDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *d), COPY_3D, .direction = direction(d->from, d->to))
PTSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *d, CUstream s), COPY_3D, .stream = s,
     .direction = direction(d->from, d->to))
PTDS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D *d), COPY_3D, .direction = COPY_PTOP)
PTSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D *d, CUstream s), COPY_3D, .stream = s,
     .direction = COPY_PTOP)
PTSZ(cuMemPrefetchAsync, (uint64_t p, size_t n, CUdevice to, CUstream s), submit(&w), .bytes = n,
     .stream = s, .direction = to < 0 ? COPY_DTOH : COPY_HTOD)

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
