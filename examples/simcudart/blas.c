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
	int (*attribute)(int *, int, int);
	int (*function_attribute)(int *, int, uint64_t);
	int (*launch_ex)(const void *, uint64_t, void **, void **);
	int (*launch)(uint64_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      uint64_t, void **, void **);
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
		{"cuDeviceGetAttribute", (void **)&driver.attribute},
		{"cuFuncGetAttribute", (void **)&driver.function_attribute},
		{"cuLaunchKernelEx", (void **)&driver.launch_ex},
		{"cuLaunchKernel", (void **)&driver.launch},
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

struct shape {
	unsigned x, y, z, threads;
};

struct kernel {
	uint64_t function, stream;
};

int blas_device(void)
{
	int device;
	pthread_once(&once, find_driver);
	return !driver.launch || driver.get_device(&device) || device >= MAX_DEVICES ? -1 : device;
}

static int find(const char *name, int device, uint64_t stream, struct kernel *out)
{
	if (device < 0)
		return NOT_INITIALIZED;
	pthread_once(&once, find_driver);
	out->stream = stream;
	pthread_mutex_lock(&loaded.lock);
	int r = load(name, device, &out->function);
	pthread_mutex_unlock(&loaded.lock);
	return r;
}

static int launch(struct kernel k, struct shape s)
{
	return driver.launch(k.function, s.x, s.y, s.z, s.threads, 1, 1, 0, k.stream, NULL, NULL)
		       ? EXECUTION_FAILED
		       : SUCCESS;
}

static int launch_ex(struct kernel k, struct shape s)
{
	struct {
		unsigned gx, gy, gz, bx, by, bz, shared;
		uint64_t stream;
		void *attributes;
		unsigned count;
	} config = {s.x, s.y, s.z, s.threads, 1, 1, 0, k.stream, NULL, 0};
	return driver.launch_ex(&config, k.function, NULL, NULL) ? EXECUTION_FAILED : SUCCESS;
}

static unsigned tiles(int64_t n, unsigned of)
{
	return n <= 0 ? 1 : (unsigned)((n + of - 1) / of);
}

int blas_launch(const char *kernel, int64_t blocks, int device, uint64_t stream)
{
	struct kernel k;
	int r = find(kernel, device, stream, &k);
	return r ? r : launch(k, (struct shape){tiles(blocks, 1), 1, 1, 128});
}

static const char *type_name(int type)
{
	switch (type) {
	case REAL_64F:
		return "f64f64_f64f64_f64";
	case REAL_16F:
		return "f16f16_f16f32_f32";
	case REAL_16BF:
		return "bf16bf16_bf16f32_f32";
	case COMPLEX_32F:
		return "cf32cf32_cf32cf32_cf32";
	case COMPLEX_64F:
		return "cf64cf64_cf64cf64_cf64";
	}
	return "f32f32_f32f32_f32";
}

/* A long sum for few tiles is split between processors, and put together by a second kernel. */
#define SPLIT_TILES 8
#define SPLIT_K 512
static const char split_kernel[] = "_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffLb1ELb1ELb0EEEvv";

static int split(const struct matmul *m)
{
	enum { MULTIPROCESSOR_COUNT = 16 };
	int processors;
	struct kernel k;
	if (driver.attribute(&processors, MULTIPROCESSOR_COUNT, m->device))
		return EXECUTION_FAILED;
	int r = find(split_kernel, m->device, m->stream, &k);
	return r ? r : launch(k, (struct shape){tiles(m->m * m->n, 512), 1, 1, 512});
}

/*
 * The real library's choices are unknown; these reproduce the measured numbers of driver
 * calls per training step (README.md): products without a transposed operand in single
 * precision are older kernels and launched by the older function, the size of a kernel is
 * queried with nine of its attributes.
 */
int blas_matmul(const struct matmul *m)
{
	char name[128];
	bool old = m->type == REAL_32F && !m->transposed_a && !m->transposed_b;
	unsigned width = m->m > 64 ? 128 : 64, height = m->n > 64 ? 128 : 64;
	struct shape s = {tiles(m->m, width), tiles(m->n, height), tiles(m->batch, 1), 256};
	struct kernel k;
	int value;

	if (m->m < 0 || m->n < 0)
		return INVALID_VALUE;
	if (!m->m || !m->n || !m->batch)
		return SUCCESS;
	if (old)
		snprintf(name, sizeof(name), "ampere_sgemm_%ux%u_nn", width, height);
	else
		snprintf(name, sizeof(name), "sm90_xmma_gemm_%s_%c%c_n_tilesize%ux%ux32_cublas", type_name(m->type),
			 m->transposed_a ? 't' : 'n', m->transposed_b ? 't' : 'n', width, height);
	int r = find(name, m->device, m->stream, &k);
	for (int i = 0; r == SUCCESS && i < 9; i++)
		driver.function_attribute(&value, i, k.function);
	if (r == SUCCESS)
		r = old ? launch(k, s) : launch_ex(k, s);
	if (r == SUCCESS && m->k >= SPLIT_K && m->batch == 1 && s.x * s.y <= SPLIT_TILES)
		r = split(m);
	return r;
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
