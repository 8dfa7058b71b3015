/* SPDX-License-Identifier: Apache-2.0 */

/*
 * runtime_test SCENARIO: a small program over the simulated runtime, as a compiler would
 * make it. It checks results itself; which calls the driver got is checked by the Go test.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

typedef struct {
	unsigned x, y, z;
} dim3;
typedef uint64_t stream;

/* The reference's declarations, as far as they are used here. */
void **__cudaRegisterFatBinary(const void *);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, stream);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, stream);
int cudaFuncGetAttributes(void *, const void *);
int cudaGetDevice(int *), cudaSetDevice(int), cudaGetDeviceCount(int *), cudaDeviceSynchronize(void);
int cudaGetDeviceProperties_v2(void *, int);
int cudaGetLastError(void), cudaPeekAtLastError(void);
const char *cudaGetErrorString(int), *cudaGetErrorName(int);
int cudaMalloc(void **, size_t), cudaFree(void *);
int cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *);
int cudaMallocAsync(void **, size_t, stream), cudaFreeAsync(void *, stream);
int cudaDeviceGetDefaultMemPool(uint64_t *, int), cudaMemPoolGetAttribute(uint64_t, int, void *);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, stream);
int cudaMemset(void *, int, size_t);
int cudaPointerGetAttributes(void *, const void *);
int cudaStreamCreateWithPriority(stream *, unsigned, int), cudaStreamDestroy(stream);
int cudaStreamGetPriority(stream, int *);
int cudaStreamBeginCapture(stream, int), cudaStreamEndCapture(stream, uint64_t *);
int cudaStreamIsCapturing(stream, int *), cudaStreamGetCaptureInfo_v2(stream, int *, uint64_t *, void *, void *, void *);
int cudaGraphGetNodes(uint64_t, void *, size_t *), cudaGraphInstantiate(uint64_t *, uint64_t, unsigned long long);
int cudaGraphLaunch(uint64_t, stream), cudaGraphDestroy(uint64_t), cudaGraphExecDestroy(uint64_t);
int cudaLaunchHostFunc(stream, void (*)(void *), void *);
int cudaEventCreate(uint64_t *), cudaEventRecord(uint64_t, stream), cudaEventElapsedTime(float *, uint64_t, uint64_t);
int cublasCreate_v2(void **), cublasDestroy_v2(void *);
int cublasSgemm_v2(void *, int, int, int, int, int, const float *, const void *, int, const void *, int, const float *, void *, int);

/* The compiler's output for `__global__ void scale()` and `scale<<<…>>>()`. */
static char image[] = "device code";
static const struct {
	int magic, version;
	const void *image;
	void *unused;
} binary = {0x466243b1, 1, image, NULL};
static char scale, missing; /* their addresses identify kernels */

__attribute__((constructor)) static void registered(void)
{
	void **code = __cudaRegisterFatBinary(&binary);
	__cudaRegisterFunction(code, &scale, "scale", "_Z5scalePfi", -1, NULL, NULL, NULL, NULL, NULL);
}

static int launch_scale(unsigned blocks, stream s)
{
	dim3 grid, block;
	size_t shared;
	stream popped;
	CHECK(__cudaPushCallConfiguration((dim3){blocks, 1, 1}, (dim3){128, 1, 1}, 64, s) == 0);
	CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &popped) == 0);
	CHECK(grid.x == blocks && block.x == 128 && shared == 64 && popped == s);
	return cudaLaunchKernel(&scale, grid, block, NULL, shared, popped);
}

static void launches(void)
{
	int attributes[36];
	for (int i = 0; i < 10; i++)
		CHECK(launch_scale(8, 0) == 0);
	CHECK(cudaFuncGetAttributes(attributes, &scale) == 0 && attributes[6] == 1024 && attributes[7] == 32);
	CHECK(cudaLaunchKernel(&missing, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, 0) == 98);
	CHECK(cudaGetLastError() == 98);
	CHECK(cudaSetDevice(1) == 0 && launch_scale(2, 0) == 0); /* another context: resolved again */
}

static void devices(void)
{
	int n, device;
	char properties[1032];
	CHECK(cudaGetDevice(&device) == 0 && device == 0);
	CHECK(cudaGetDeviceCount(&n) == 0 && n == 2);
	CHECK(cudaGetDeviceProperties_v2(properties, 1) == 0 && !strcmp(properties, "Simulated GPU 1"));
	CHECK(*(int *)(properties + 360) == 9 && *(int *)(properties + 388) == 132);
	CHECK(cudaSetDevice(7) == 101 && cudaPeekAtLastError() == 101);
	CHECK(!strcmp(cudaGetErrorName(101), "cudaErrorInvalidDevice"));
	CHECK(!strcmp(cudaGetErrorString(2), "out of memory"));
	CHECK(cudaGetLastError() == 101 && cudaGetLastError() == 0);
	CHECK(cudaSetDevice(1) == 0);
	for (int i = 0; i < 1000; i++)
		CHECK(cudaGetDevice(&device) == 0 && device == 1);
}

static void *other_thread(void *p)
{
	int device;
	CHECK(cudaGetLastError() == 0); /* errors are each thread's own */
	CHECK(cudaGetDevice(&device) == 0 && device == 0);
	CHECK(cudaFree(p) == 0);
	return NULL;
}

struct pointer {
	int type, device;
	void *on_device, *on_host;
};

static void memory(void)
{
	enum { TO_DEVICE = 1, TO_HOST = 2, WITHIN = 3 };
	char *p, *q, *host, back[8] = "", own[8] = "";
	struct pointer what;
	uint64_t pool, used = 0;
	pthread_t t;

	CHECK(cudaMalloc((void **)&p, 1ull << 40) == 2 && cudaGetLastError() == 2);
	CHECK(cudaMalloc((void **)&p, 4 << 20) == 0 && cudaMalloc((void **)&q, 64) == 0);
	CHECK(cudaMemcpy(p + 100, "written", 8, TO_DEVICE) == 0);
	CHECK(cudaMemcpyAsync(q, p + 100, 8, WITHIN, 0) == 0 && cudaMemcpyAsync(back, q, 8, TO_HOST, 0) == 0);
	CHECK(!strcmp(back, "written"));
	CHECK(cudaMemset(p, 0, 4 << 20) == 0 && cudaMemcpy(back, p + 100, 8, TO_HOST) == 0 && !back[0]);
	CHECK(cudaHostAlloc((void **)&host, 100, 0) == 0);
	CHECK(cudaPointerGetAttributes(&what, p + 12345) == 0 && what.type == 2 && what.on_device == p + 12345);
	CHECK(cudaPointerGetAttributes(&what, host + 7) == 0 && what.type == 1 && what.on_host == host + 7);
	CHECK(cudaPointerGetAttributes(&what, own) == 0 && what.type == 0 && what.device == -2);
	CHECK(cudaFree(NULL) == 0 && cudaFreeHost(NULL) == 0 && cudaFreeHost(host) == 0 && cudaFree(q) == 0);
	CHECK(cudaFree(q) == 1); /* only this thread's error */
	CHECK(pthread_create(&t, NULL, other_thread, p) == 0 && pthread_join(t, NULL) == 0);
	CHECK(cudaGetLastError() == 1);
	CHECK(cudaMallocAsync((void **)&p, 1000, 0) == 0 && cudaDeviceGetDefaultMemPool(&pool, 0) == 0);
	CHECK(cudaMemPoolGetAttribute(pool, 7, &used) == 0 && used == 1000);
	CHECK(cudaFreeAsync(p, 0) == 0 && cudaMemPoolGetAttribute(pool, 7, &used) == 0 && used == 0);
	CHECK(cudaMemPoolGetAttribute(pool, 5, &used) == 0 && used == 32 << 20);
}

static void note(void *called)
{
	*(int *)called += 1;
}

static void graphs(void)
{
	stream s;
	uint64_t graph, exec, id = 0, begin, end;
	size_t nodes;
	int status, called = 0, priority;
	float ms;

	CHECK(cudaStreamCreateWithPriority(&s, 1, -1) == 0 && cudaStreamGetPriority(s, &priority) == 0 && priority == -1);
	CHECK(cudaEventCreate(&begin) == 0 && cudaEventCreate(&end) == 0 && cudaEventRecord(begin, s) == 0);
	CHECK(cudaStreamBeginCapture(s, 0) == 0 && cudaStreamIsCapturing(s, &status) == 0 && status == 1);
	CHECK(cudaStreamGetCaptureInfo_v2(s, &status, &id, NULL, NULL, NULL) == 0 && status == 1 && id == 1);
	CHECK(launch_scale(4, s) == 0 && launch_scale(4, s) == 0);
	CHECK(cudaStreamIsCapturing(0, &status) == 0 && status == 0);
	CHECK(cudaStreamEndCapture(s, &graph) == 0 && cudaGraphGetNodes(graph, NULL, &nodes) == 0 && nodes == 2);
	CHECK(cudaGraphInstantiate(&exec, graph, 0) == 0 && cudaGraphLaunch(exec, s) == 0);
	CHECK(cudaGraphExecDestroy(exec) == 0 && cudaGraphDestroy(graph) == 0);
	CHECK(cudaLaunchHostFunc(s, note, &called) == 0 && cudaDeviceSynchronize() == 0 && called == 1);
	CHECK(cudaEventRecord(end, s) == 0 && cudaEventElapsedTime(&ms, begin, end) == 0 && ms >= 0);
	CHECK(cudaStreamDestroy(s) == 0);
}

static void products(void)
{
	void *handle;
	float one = 1;
	CHECK(cudaFree(NULL) == 0 && cublasCreate_v2(&handle) == 0);
	/* Transposed: the newer launch. A long sum for one tile: a second kernel. */
	CHECK(cublasSgemm_v2(handle, 1, 0, 512, 512, 64, &one, NULL, 512, NULL, 512, &one, NULL, 512) == 0);
	CHECK(cublasSgemm_v2(handle, 1, 0, 64, 64, 4096, &one, NULL, 64, NULL, 64, &one, NULL, 64) == 0);
	CHECK(cublasSgemm_v2(handle, 0, 0, 512, 512, 64, &one, NULL, 512, NULL, 512, &one, NULL, 512) == 0);
	CHECK(cublasDestroy_v2(handle) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = {{"launches", launches}, {"devices", devices}, {"memory", memory},
			 {"graphs", graphs}, {"products", products}};

	for (size_t i = 0; argc == 2 && i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (!strcmp(argv[1], scenarios[i].name)) {
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "usage: runtime_test SCENARIO\n");
	return 2;
}
