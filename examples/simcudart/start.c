/* SPDX-License-Identifier: Apache-2.0 */

/* How the runtime finds the driver, and which context a thread gets. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"

struct driver driver;
int device_count;
uint64_t primary[MAX_DEVICES];
__thread struct thread thread __attribute__((tls_model("initial-exec")));

static struct {
	pthread_mutex_t lock;
	bool started;
	cudaError_t result;
} start = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The version of the API that this runtime was written for: which form of a function it
 * gets. Newer forms have other parameters. */
#define API_VERSION 12040

static const struct {
	const char *name;
	void **to;
} wanted[] = {
#define X(symbol, ...) {#symbol, (void **)&driver.symbol},
	DRIVER(X)
#undef X
};

static cudaError_t find_driver(void)
{
	cudaError_t (*get)(const char *, void **, int, uint64_t, int *);
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		return cudaErrorInsufficientDriver;
	*(void **)&get = dlsym(library, "cuGetProcAddress_v2");
	if (!get)
		return cudaErrorInsufficientDriver;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		if (get(wanted[i].name, wanted[i].to, API_VERSION, 0, NULL)) {
			fprintf(stderr, "simcudart: the driver has no %s\n", wanted[i].name);
			return cudaErrorInsufficientDriver;
		}
	return cudaSuccess;
}

/* The real runtime's queries of each device at its start, for its properties. */
static cudaError_t begin(void)
{
	cudaError_t r = find_driver();
	int n = 0, dev, value;
	char text[256];
	size_t bytes;

	if (r == cudaSuccess)
		r = driver.cuInit(0);
	if (r == cudaSuccess)
		r = driver.cuDeviceGetCount(&n);
	if (r != cudaSuccess)
		return r;
	device_count = n > MAX_DEVICES ? MAX_DEVICES : n;
	for (int i = 0; i < device_count; i++) {
		driver.cuDeviceGet(&dev, i);
		driver.cuDeviceGetName(text, sizeof(text), dev);
		driver.cuDeviceTotalMem(&bytes, dev);
		for (int a = 1; a <= 120; a++)
			driver.cuDeviceGetAttribute(&value, a, dev);
		driver.cuDeviceGetUuid(text, dev);
	}
	return cudaSuccess;
}

cudaError_t ready(void)
{
	if (__atomic_load_n(&start.started, __ATOMIC_ACQUIRE))
		return start.result;
	pthread_mutex_lock(&start.lock);
	if (!start.started) {
		start.result = begin();
		__atomic_store_n(&start.started, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&start.lock);
	return start.result;
}

cudaError_t use_device(int device)
{
	cudaError_t r = cudaSuccess;
	if (device < 0 || device >= device_count)
		return cudaErrorInvalidDevice;
	pthread_mutex_lock(&start.lock);
	if (!primary[device])
		r = driver.cuDevicePrimaryCtxRetain(&primary[device], device);
	pthread_mutex_unlock(&start.lock);
	if (r == cudaSuccess)
		r = driver.cuCtxSetCurrent(primary[device]);
	if (r == cudaSuccess) {
		thread.device = device;
		thread.bound = true;
	}
	return r;
}

int device_of_current(void)
{
	uint64_t current = 0;
	driver.cuCtxGetCurrent(&current);
	for (int i = 0; i < device_count; i++)
		if (primary[i] == current)
			return i;
	return current_device(); /* a context that the program made itself */
}

int current_device(void)
{
	int device;
	return driver.cuCtxGetDevice(&device) == cudaSuccess ? device : thread.device;
}

cudaError_t context(void)
{
	cudaError_t r = ready();
	uint64_t current = 0;
	int device;
	if (r != cudaSuccess || thread.bound)
		return r;
	r = driver.cuCtxGetDevice(&device);
	if (r == cudaErrorInvalidContext) {
		driver.cuCtxGetCurrent(&current);
		r = use_device(thread.device);
	}
	thread.bound = r == cudaSuccess;
	return r;
}

/* The driver of a child of fork() starts afresh. */
static void after_fork_in_child(void)
{
	pthread_mutex_init(&start.lock, NULL);
	start.started = false;
	thread.bound = false;
	for (int i = 0; i < MAX_DEVICES; i++)
		primary[i] = 0;
}

__attribute__((constructor)) static void load(void)
{
	pthread_atfork(NULL, NULL, after_fork_in_child);
}
