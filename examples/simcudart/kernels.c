/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Kernels: a program registers its device code and a function of the host for each
 * kernel. The first launch loads the code into the driver and resolves the kernel by its
 * name, as in the real runtime; later launches only launch.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

/* Device code of one object file of the program. */
struct code {
	const void *image;
	uint64_t library; /* 0: not loaded */
	unsigned generation;
};

struct kernel {
	const void *host; /* NULL: a free slot */
	const char *name;
	struct code *code;
	_Atomic uint64_t function[MAX_DEVICES]; /* 0: not resolved */
	unsigned generation;
};

/* Open addressing; at most half full. PyTorch registers tens of thousands. */
static struct {
	pthread_mutex_t lock;
	struct kernel **slots;
	size_t mask, count;
	unsigned generation; /* changes with a fork: the driver's handles are the parent's */
} kernels = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t home(const void *host)
{
	return ((uint64_t)host * 0x9e3779b97f4a7c15ull >> 32) & kernels.mask; /* 2^64 / φ */
}

static struct kernel **slot_of(const void *host)
{
	size_t i = home(host);
	while (kernels.slots[i] && kernels.slots[i]->host != host)
		i = (i + 1) & kernels.mask;
	return &kernels.slots[i];
}

static void grow(void)
{
	struct kernel **old = kernels.slots;
	size_t n = old ? kernels.mask + 1 : 0;
	kernels.mask = n ? n * 2 - 1 : 8191;
	kernels.slots = calloc(kernels.mask + 1, sizeof(*kernels.slots));
	if (!kernels.slots)
		abort();
	for (size_t i = 0; i < n; i++)
		if (old[i])
			*slot_of(old[i]->host) = old[i];
	free(old);
}

/* The wrapping that nvcc puts around device code. */
struct fat_binary {
	int magic, version;
	const void *image;
	void *unused;
};

EXPORT void **__cudaRegisterFatBinary(const struct fat_binary *binary)
{
	struct code *c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	c->image = binary->image;
	return (void **)c;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

EXPORT void __cudaUnregisterFatBinary(void **handle)
{
	/* At the end of the process: the code stays, as does the driver. */
	(void)handle;
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device_function,
				   const char *name, int threads, void *tid, void *bid, void *block,
				   void *grid, int *warp)
{
	(void)device_function, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
	struct kernel *k = calloc(1, sizeof(*k));
	if (!k)
		abort();
	k->host = host;
	k->name = name;
	k->code = (struct code *)handle;
	pthread_mutex_lock(&kernels.lock);
	if (kernels.count * 2 >= kernels.mask)
		grow();
	struct kernel **slot = slot_of(host);
	kernels.count += *slot == NULL;
	*slot = k;
	pthread_mutex_unlock(&kernels.lock);
}

/* Variables of the device are not simulated: they are never read. */
EXPORT void __cudaRegisterVar(void **handle, char *host, char *device_address, const char *name,
			      int is_extern, size_t size, int constant, int global)
{
	(void)handle, (void)host, (void)device_address, (void)name;
	(void)is_extern, (void)size, (void)constant, (void)global;
}

static cudaError_t load(struct kernel *k, int device, uint64_t *out)
{
	cudaError_t r = cudaSuccess;
	uint64_t module, popped, current = primary[device];
	if (!current) /* one that the program made itself */
		driver.cuCtxGetCurrent(&current);
	if (!k->code->library || k->code->generation != kernels.generation)
		r = driver.cuLibraryLoadData(&k->code->library, k->code->image, NULL, NULL, 0, NULL, NULL, 0);
	k->code->generation = kernels.generation;
	if (r != cudaSuccess || (r = driver.cuCtxPushCurrent(current)) != cudaSuccess)
		return r;
	r = driver.cuLibraryGetModule(&module, k->code->library);
	driver.cuCtxPopCurrent(&popped);
	if (r == cudaSuccess)
		r = driver.cuModuleGetFunction(out, module, k->name);
	return r;
}

cudaError_t kernel_function(const void *host, int device, uint64_t *out)
{
	cudaError_t r = cudaSuccess;
	pthread_mutex_lock(&kernels.lock);
	struct kernel *k = kernels.slots ? *slot_of(host) : NULL;
	if (!k) {
		r = cudaErrorInvalidDeviceFunction;
	} else {
		if (k->generation != kernels.generation)
			for (int d = 0; d < MAX_DEVICES; d++)
				k->function[d] = 0;
		k->generation = kernels.generation;
		uint64_t function = k->function[device];
		if (!function && (r = load(k, device, &function)) == cudaSuccess)
			k->function[device] = function;
		*out = function;
	}
	pthread_mutex_unlock(&kernels.lock);
	return r;
}

/* ----------------------------------------------------------------------- launches */

/* Of <<<…>>>: pushed by the caller, popped by the host stub that it calls. */
struct configuration {
	dim3 grid, block;
	size_t shared;
	cudaStream_t stream;
};
#define MAX_CONFIGURATIONS 8
static __thread struct {
	unsigned depth;
	struct configuration all[MAX_CONFIGURATIONS];
} pushed;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
	if (pushed.depth == MAX_CONFIGURATIONS)
		return cudaErrorMissingConfiguration;
	pushed.all[pushed.depth++] = (struct configuration){grid, block, shared, stream};
	return cudaSuccess;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	if (!pushed.depth)
		return cudaErrorMissingConfiguration;
	struct configuration *c = &pushed.all[--pushed.depth];
	*grid = c->grid;
	*block = c->block;
	*shared = c->shared;
	*(cudaStream_t *)stream = c->stream;
	return cudaSuccess;
}

static cudaError_t launch(const void *host, dim3 grid, dim3 block, size_t shared,
			  cudaStream_t stream, void **arguments)
{
	uint64_t function;
	cudaError_t r = kernel_function(host, device_of_current(), &function);
	if (r != cudaSuccess)
		return r;
	return driver.cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
				     (unsigned)shared, stream, arguments, NULL);
}

ENTRY(cudaLaunchKernel, (const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream),
      launch(host, grid, block, shared, stream, arguments))

/* cudaLaunchConfig_t; the driver's CUlaunchConfig differs in the size of `shared`. */
struct launch_config {
	dim3 grid, block;
	size_t shared;
	cudaStream_t stream;
	void *attributes;
	unsigned count;
};

static cudaError_t launch_ex(const struct launch_config *c, const void *host, void **arguments)
{
	struct {
		dim3 grid, block;
		unsigned shared;
		cudaStream_t stream;
		void *attributes;
		unsigned count;
	} config = {c->grid, c->block, (unsigned)c->shared, c->stream, c->attributes, c->count};
	uint64_t function;
	cudaError_t r = kernel_function(host, device_of_current(), &function);
	if (r != cudaSuccess)
		return r;
	return driver.cuLaunchKernelEx(&config, function, arguments, NULL);
}

ENTRY(cudaLaunchKernelExC, (const struct launch_config *config, const void *host, void **arguments),
      config ? launch_ex(config, host, arguments) : cudaErrorInvalidValue)

/* ------------------------------------------------------------ properties of kernels */

struct cudaFuncAttributes {
	size_t shared, constant, local;
	int values[13]; /* CUfunction_attribute 0, 4 to 15, in other order */
	int reserved[16];
};
_Static_assert(sizeof(struct cudaFuncAttributes) == 144, "as the reference has it");

static cudaError_t attributes(struct cudaFuncAttributes *out, const void *host)
{
	/* maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA,
	 * maxDynamicSharedSizeBytes, preferredShmemCarveout, and of clusters. */
	static const int order[] = {0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14};
	uint64_t function;
	int value;
	cudaError_t r = kernel_function(host, device_of_current(), &function);
	if (r != cudaSuccess || !out)
		return r ? r : cudaErrorInvalidValue;
	memset(out, 0, sizeof(*out));
	driver.cuFuncGetAttribute(&value, 1, function);
	out->shared = (size_t)value;
	driver.cuFuncGetAttribute(&value, 2, function);
	out->constant = (size_t)value;
	driver.cuFuncGetAttribute(&value, 3, function);
	out->local = (size_t)value;
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++)
		driver.cuFuncGetAttribute(&out->values[i], order[i], function);
	return cudaSuccess;
}

ENTRY(cudaFuncGetAttributes, (struct cudaFuncAttributes *out, const void *host), attributes(out, host))

static cudaError_t set_attribute(const void *host, int attribute, int value)
{
	uint64_t function;
	cudaError_t r = kernel_function(host, thread.device, &function);
	return r ? r : driver.cuFuncSetAttribute(function, attribute, value);
}

ENTRY(cudaFuncSetAttribute, (const void *host, int attribute, int value), set_attribute(host, attribute, value))

static cudaError_t occupancy(int *out, const void *host, int threads, size_t shared, unsigned flags)
{
	uint64_t function;
	cudaError_t r = kernel_function(host, current_device(), &function);
	return r ? r : driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, threads, shared, flags);
}

ENTRY(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
      (int *out, const void *host, int threads, size_t shared, unsigned flags),
      occupancy(out, host, threads, shared, flags))

static void after_fork_in_child(void)
{
	pthread_mutex_init(&kernels.lock, NULL);
	kernels.generation++;
}

__attribute__((constructor)) static void setup(void)
{
	pthread_atfork(NULL, NULL, after_fork_in_child);
}
