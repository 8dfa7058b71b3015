/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "blas.h"

#define MAX_DEVICES 16
#define MAX_KERNELS 256

static struct {
	int (*get_device)(int *);
	int (*get_current)(uint64_t *);
	int (*load)(uint64_t *, const void *, void *, void *, unsigned, void *, void *, unsigned);
	int (*push)(uint64_t);
	int (*pop)(uint64_t *);
	int (*module)(uint64_t *, uint64_t);
	int (*function)(uint64_t *, uint64_t, const char *);
	int (*launch)(const void *, uint64_t, void **, void **);
} driver;

static struct {
	pthread_mutex_t lock;
	uint64_t library;
	unsigned count;
	struct {
		char name[128];
		uint64_t function[MAX_DEVICES];
	} kernels[MAX_KERNELS];
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_driver(void)
{
	static const struct {
		const char *name;
		void **to;
	} wanted[] = {
		{"cuCtxGetDevice", (void **)&driver.get_device},
		{"cuCtxGetCurrent", (void **)&driver.get_current},
		{"cuLibraryLoadData", (void **)&driver.load},
		{"cuCtxPushCurrent", (void **)&driver.push},
		{"cuCtxPopCurrent", (void **)&driver.pop},
		{"cuLibraryGetModule", (void **)&driver.module},
		{"cuModuleGetFunction", (void **)&driver.function},
		{"cuLaunchKernelEx", (void **)&driver.launch},
	};
	int (*get)(const char *, void **, int, uint64_t, int *);
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	*(void **)&get = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
	for (size_t i = 0; get && i < sizeof(wanted) / sizeof(*wanted); i++)
		if (get(wanted[i].name, wanted[i].to, 12040, 0, NULL))
			return; /* the launch is missing, which is checked */
}

/* The library's kernels are loaded by name when they are launched first. */
static int load(const char *name, int device, uint64_t *out)
{
	static const char image[] = "kernels of the simulated cuBLAS";
	uint64_t context, module;
	unsigned i = 0;

	while (i < loaded.count && strcmp(loaded.kernels[i].name, name))
		i++;
	if (i == MAX_KERNELS)
		return ALLOC_FAILED;
	if (i == loaded.count)
		snprintf(loaded.kernels[loaded.count++].name, sizeof(loaded.kernels[i].name), "%s", name);
	*out = loaded.kernels[i].function[device];
	if (*out)
		return SUCCESS;
	if ((!loaded.library && driver.load(&loaded.library, image, NULL, NULL, 0, NULL, NULL, 0)) ||
	    driver.get_current(&context) || driver.push(context))
		return EXECUTION_FAILED;
	int r = driver.module(&module, loaded.library);
	driver.pop(&context);
	if (r || driver.function(out, module, name))
		return EXECUTION_FAILED;
	loaded.kernels[i].function[device] = *out;
	return SUCCESS;
}

static int launch(const char *kernel, unsigned x, unsigned y, unsigned z, unsigned threads,
		  unsigned shared, uint64_t stream)
{
	struct {
		unsigned gx, gy, gz, bx, by, bz, shared;
		uint64_t stream;
		void *attributes;
		unsigned count;
	} config = {x, y, z, threads, 1, 1, shared, stream, NULL, 0};
	int device;
	uint64_t function;

	pthread_once(&once, find_driver);
	if (!driver.launch || driver.get_device(&device) || device >= MAX_DEVICES)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&loaded.lock);
	int r = load(kernel, device, &function);
	pthread_mutex_unlock(&loaded.lock);
	if (r == SUCCESS && driver.launch(&config, function, NULL, NULL))
		r = EXECUTION_FAILED;
	return r;
}

static unsigned tiles(int64_t n, unsigned of)
{
	return n <= 0 ? 1 : (unsigned)((n + of - 1) / of);
}

int blas_launch(const char *kernel, int64_t blocks, uint64_t stream)
{
	return launch(kernel, tiles(blocks, 1), 1, 1, 128, 0, stream);
}

int blas_matmul(const struct matmul *m)
{
	static const struct {
		int type;
		const char *name;
	} types[] = {
		{REAL_32F, "f32f32_f32f32_f32"},    {REAL_64F, "f64f64_f64f64_f64"},
		{REAL_16F, "f16f16_f16f32_f32"},    {REAL_16BF, "bf16bf16_bf16f32_f32"},
		{COMPLEX_32F, "cf32cf32_cf32cf32_cf32"}, {COMPLEX_64F, "cf64cf64_cf64cf64_cf64"},
	};
	char name[128];
	const char *type = types[0].name;
	unsigned width = m->m > 64 ? 128 : 64, height = m->n > 64 ? 128 : 64;

	if (m->m < 0 || m->n < 0)
		return INVALID_VALUE;
	if (!m->m || !m->n || !m->batch)
		return SUCCESS;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (types[i].type == m->type)
			type = types[i].name;
	snprintf(name, sizeof(name), "sm90_xmma_gemm_%s_%c%c_n_tilesize%ux%ux32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
		 type, m->transposed_a ? 't' : 'n', m->transposed_b ? 't' : 'n', width, height);
	return launch(name, tiles(m->m, width), tiles(m->n, height), tiles(m->batch, 1), 256, 0, m->stream);
}

/* The driver of a child of fork() starts afresh. */
static void after_fork_in_child(void)
{
	pthread_mutex_init(&loaded.lock, NULL);
	loaded.library = 0;
	loaded.count = 0;
	memset(loaded.kernels, 0, sizeof(loaded.kernels));
}

__attribute__((constructor)) static void setup(void)
{
	pthread_atfork(NULL, NULL, after_fork_in_child);
}
