/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The entries of DRIVER_CALLS that load and name kernels and launch them. Nothing is
 * computed. The arguments of a call are in its record.
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
	struct module *of_device[MAX_DEVICES]; /* a library's, once requested */
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

/* A module has every requested kernel. A name always has the same handle. */
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

#ifdef VENDOR_HIP
void function_register(struct work *w, uint64_t handle, const char *name)
{
	struct function *f = find(SPACE_FUNCTION, handle);
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f)
			abort();
		f->handle = handle;
		insert(SPACE_FUNCTION, handle, f);
	}
	free(f->name);
	f->name = strdup(name);
	f->hash = w->name = name_hash(name);
	journal_kernel(name);
}
#endif

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

CUresult launch(struct work *w)
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

/* Tests pass numbers as functions: nothing can be mapped below this address. */
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
	/* After the work on the stream; at once if there is none. */
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
