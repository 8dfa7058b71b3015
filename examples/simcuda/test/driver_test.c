/* SPDX-License-Identifier: Apache-2.0 */

/*
 * driver_test LIBRARY SCENARIO: exercises the simulated driver through its exported
 * symbols. It checks results and addresses itself; simcuda_test.go checks the journal
 * afterwards.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../cuda.h"

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

/* How the entries are called here: every argument as a 64-bit register. */
typedef int (*entry)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static void *library;

static int call(const char *symbol, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	entry f = (entry)dlsym(library, symbol);
	if (!f) {
		fprintf(stderr, "no symbol %s\n", symbol);
		exit(1);
	}
	return f(a, b, c, d, e, 0);
}

#define ARG(x) ((uint64_t)(x))
#define CALL5(s, a, b, c, d, e, ...) call(#s, ARG(a), ARG(b), ARG(c), ARG(d), ARG(e))
#define CU(symbol, ...) CALL5(symbol, __VA_ARGS__, 0, 0, 0, 0, 0)

static void tag(uint64_t t)
{
	((void (*)(uint64_t))dlsym(library, "simcuda_tag"))(t);
}

static CUcontext start(int device)
{
	CUcontext c;
	CHECK(CU(cuInit, 0) == 0);
	CHECK(CU(cuDevicePrimaryCtxRetain, &c, device) == 0);
	CHECK(CU(cuCtxSetCurrent, c) == 0);
	return c;
}

static void semantics(void)
{
	CUdeviceptr p = 0, q = 0;
	uint32_t low = 0, low_pitch = 0;
	size_t pitch = 0, left, total;
	int n;

	CHECK(CU(cuMemAlloc_v2, &p, 64) == CUDA_ERROR_NOT_INITIALIZED);
	CHECK(CU(cuInit, 0) == 0 && CU(cuDeviceGetCount, &n) == 0 && n == 2);
	CHECK(CU(cuMemAlloc_v2, &p, 64) == CUDA_ERROR_INVALID_CONTEXT);
	start(1);

	tag(1); /* device memory */
	CHECK(CU(cuMemAlloc_v2, &p, 0) == CUDA_ERROR_INVALID_VALUE && !p);
	CHECK(CU(cuMemAlloc_v2, &p, (1 << 20) + 1) == CUDA_ERROR_OUT_OF_MEMORY && !p);
	CHECK(CU(cuMemAlloc_v2, &p, 1 << 20) == 0 && p);
	CHECK(CU(cuMemAlloc_v2, &q, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemGetInfo_v2, &left, &total) == 0 && left == 0 && total == 1 << 20);
	CHECK(CU(cuMemFree_v2, p + 1) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemFree_v2, p) == 0);
	CHECK(CU(cuMemFree_v2, p) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemAlloc_v2, &q, (1 << 20) - 5) == 0 && q == p); /* reused */
	CHECK(CU(cuMemFreeAsync, q, 0) == 0);

	tag(2); /* the first ABI and pitched memory */
	CHECK(CU(cuMemAlloc, &low, 1000) == 0 && low);
	CHECK(CU(cuMemFree, low) == 0);
	CHECK(CU(cuMemAllocPitch_v2, &p, &pitch, 513, 3, 4) == 0 && pitch == 1024);
	CHECK(CU(cuMemAllocPitch, &low, &low_pitch, 100, 2, 16) == 0 && low_pitch == 512);
	CHECK(CU(cuMemFree_v2, p) == 0 && CU(cuMemFree_v2, low) == 0);

	tag(3); /* managed, pools: each free takes them all */
	CHECK(CU(cuMemAllocManaged, &p, 300, 1) == 0 && CU(cuMemFree_v2, p) == 0);
	CHECK(CU(cuMemAllocAsync_ptsz, &p, 200, 0) == 0 && CU(cuMemFree_v2, p) == 0);
	CUmemoryPool pool;
	CHECK(CU(cuDeviceGetDefaultMemPool, &pool, 0) == 0); /* of the other device */
	CHECK(CU(cuMemAllocFromPoolAsync, &q, 100, pool, 0) == 0 && CU(cuMemFreeAsync, q, 0) == 0);
	CUmemLocation at = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUmemoryPool same;
	CHECK(CU(cuMemGetDefaultMemPool, &same, &at, 1) == 0 && same == pool);
	CHECK(CU(cuMemGetMemPool, &same, &at, 1) == 0 && same == pool);
	at.id = 99;
	CHECK(CU(cuMemGetMemPool, &same, &at, 1) == CUDA_ERROR_INVALID_DEVICE);

	tag(4); /* pinned host memory */
	void *host;
	static char mine[4096];
	CHECK(CU(cuMemHostAlloc, &host, 5000, 0) == 0);
	memset(host, 1, 5000); /* it is real */
	CHECK(CU(cuMemFree_v2, host) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemFreeHost, host) == 0);
	CHECK(CU(cuMemHostRegister_v2, mine, sizeof(mine), 0) == 0);
	CHECK(CU(cuMemHostRegister_v2, mine, 1, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK(CU(cuMemFreeHost, mine) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemHostUnregister, mine) == 0);
	CHECK(CU(cuMemHostUnregister, mine) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);

	tag(5); /* arrays: 10·4·2, 10·6·7·4 bytes; levels (10·6 + 5·3 + 2·1 + 1·1)·1 */
	CUarray a, b, m;
	CUDA_ARRAY_DESCRIPTOR flat = {10, 0, CU_AD_FORMAT_HALF, 4};
	CUDA_ARRAY3D_DESCRIPTOR_v1 box = {10, 6, 7, CU_AD_FORMAT_FLOAT, 1, 0};
	CUDA_ARRAY3D_DESCRIPTOR image = {10, 6, 0, CU_AD_FORMAT_SIGNED_INT8, 1, 0};
	CHECK(CU(cuArrayCreate_v2, &a, &flat) == 0 && CU(cuArray3DCreate, &b, &box) == 0);
	CHECK(CU(cuMipmappedArrayCreate, &m, &image, 99) == 0);
	CHECK(CU(cuArrayDestroy, m) == CUDA_ERROR_INVALID_HANDLE);
	CHECK(CU(cuMipmappedArrayDestroy, m) == 0 && CU(cuArrayDestroy, a) == 0);
	CHECK(CU(cuArrayDestroy, b) == 0);

	tag(6); /* the entries that a runtime resolves are the exported ones */
	void *f;
	CHECK(CU(cuGetProcAddress, "cuMemAlloc", &f, 12040, 0) == 0 && f == dlsym(library, "cuMemAlloc_v2"));
	CHECK(CU(cuGetProcAddress, "cuMemAlloc", &f, 3000, 0) == 0 && f == dlsym(library, "cuMemAlloc"));
	CHECK(CU(cuGetProcAddress, "cuMemAllocAsync", &f, 12040, 2) == 0 && f == dlsym(library, "cuMemAllocAsync_ptsz"));
	CHECK(CU(cuGetProcAddress, "cuNothing", &f, 12040, 0) == CUDA_ERROR_NOT_FOUND && !f);
	CHECK(CU(cuCtxGetDevice, &n) == 0 && n == 1);
}

#define UNIT (2ull << 20)

static void vmm(void)
{
	CUmemGenericAllocationHandle a, b, again, foreign;
	CUmemAllocationProp prop = {CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, 1}, 0, {0}};
	CUdeviceptr at;

	CHECK(CU(cuInit, 0) == 0); /* and no context */
	tag(1);
	CHECK(CU(cuMemCreate, &a, UNIT + 1, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemAddressReserve, &at, 8 * UNIT, 0, 0, 0) == 0);
	CHECK(CU(cuMemCreate, &a, 2 * UNIT, &prop, 0) == 0 && CU(cuMemCreate, &b, UNIT, &prop, 0) == 0);
	CHECK(CU(cuMemMap, at, 2 * UNIT, 0, a, 0) == 0 && CU(cuMemMap, at + 2 * UNIT, UNIT, 0, b, 0) == 0);
	CHECK(CU(cuMemMap, at + UNIT, UNIT, 0, b, 0) == CUDA_ERROR_INVALID_VALUE); /* taken */
	CHECK(CU(cuMemAddressFree, at, 8 * UNIT) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemRelease, a) == 0 && CU(cuMemRelease, b) == 0); /* alive by their mappings */
	CHECK(CU(cuMemRelease, a) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemRetainAllocationHandle, &again, at + UNIT + 5) == 0 && again == a);
	CUdeviceptr base = 0;
	size_t size = 0;
	CHECK(CU(cuMemGetAddressRange_v2, &base, &size, at + UNIT) == 0 && base == at && size == 2 * UNIT);
	CHECK(CU(cuMemGetAddressRange_v2, &base, NULL, at + 3 * UNIT) == CUDA_ERROR_INVALID_VALUE); /* reserved only */
	CHECK(CU(cuMemUnmap, at, UNIT) == CUDA_ERROR_INVALID_VALUE);	 /* a part */
	CHECK(CU(cuMemUnmap, at, 4 * UNIT) == CUDA_ERROR_INVALID_VALUE); /* a gap */
	tag(2);
	CHECK(CU(cuMemUnmap, at, 3 * UNIT) == 0); /* b ends here, a by its release */
	CHECK(CU(cuMemRelease, a) == 0);
	CHECK(CU(cuMemImportFromShareableHandle, &foreign, 3, 1) == 0);
	CHECK(CU(cuMemMap, at, 4 * UNIT, 0, foreign, 0) == 0 && CU(cuMemRelease, foreign) == 0);
	CHECK(CU(cuMemUnmap, at, 4 * UNIT) == 0 && CU(cuMemAddressFree, at, 8 * UNIT) == 0);
}

/* Copies and sets happen, also in mapped memory, and addresses may be inside. */
static void contents(void)
{
	CUcontext primary;
	CUdeviceptr p, q, at;
	CUmemGenericAllocationHandle physical;
	CUmemAllocationProp prop = {CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, 1}, 0, {0}};
	char text[] = "contents", back[sizeof(text)] = "";
	uint64_t value;
	int32_t ordinal;

	primary = start(1);
	CHECK(CU(cuDevicePrimaryCtxRelease_v2, 1) == 0 && CU(cuCtxSetCurrent, primary) == 0);
	CHECK(CU(cuDevicePrimaryCtxRetain, &primary, 1) == 0);
	CHECK(CU(cuMemAlloc_v2, &p, 3 * UNIT) == 0 && CU(cuMemAllocAsync, &q, 4096, 0) == 0);
	CHECK(CU(cuMemcpyHtoD_v2, p + UNIT - 3, text, sizeof(text)) == 0);
	CHECK(CU(cuMemcpyDtoDAsync_v2, q + 9, p + UNIT - 3, sizeof(text), 0) == 0);
	CHECK(CU(cuMemcpyDtoHAsync_v2, back, q + 9, sizeof(text), 0) == 0 && !strcmp(back, text));
	CHECK(CU(cuMemsetD8_v2, p, 0, 3 * UNIT) == 0 && CU(cuMemsetD32Async, p + 4, 0x61626364, 1, 0) == 0);
	CHECK(CU(cuMemcpy, (uint64_t)back, p + UNIT - 3, 4) == 0 && !back[0] && CU(cuMemcpyDtoH_v2, back, p + 4, 4) == 0);
	CHECK(!strncmp(back, "dcba", 4));
	CHECK(CU(cuMemcpyDtoH_v2, back, p + 3 * UNIT - 1, 2) == 0 && back[0] == 'd'); /* not all its own: no effect */
	CHECK(CU(cuMemcpyHtoD_v2, p, 8, 16) == 0);				      /* no such host memory */

	CHECK(CU(cuPointerGetAttribute, &value, 11, q + 100) == 0 && value == q); /* range's start */
	CHECK(CU(cuPointerGetAttribute, &ordinal, 9, p + 1) == 0 && ordinal == 1);
	CHECK(CU(cuPointerGetAttribute, &ordinal, 9, p + 3 * UNIT) == CUDA_ERROR_INVALID_VALUE);

	CHECK(CU(cuMemAddressReserve, &at, 4 * UNIT, 0, 0, 0) == 0);
	CHECK(CU(cuMemCreate, &physical, 2 * UNIT, &prop, 0) == 0 && CU(cuMemMap, at, 2 * UNIT, 0, physical, 0) == 0);
	CHECK(CU(cuMemcpyHtoD_v2, at + UNIT, text, sizeof(text)) == 0);
	CHECK(CU(cuMemcpyDtoH_v2, back, at + UNIT, sizeof(text)) == 0 && !strcmp(back, text));
	CHECK(CU(cuMemcpyHtoD_v2, at + 2 * UNIT - 1, text, sizeof(text)) == 0); /* beyond the mapping */
	CHECK(CU(cuPointerGetAttribute, &ordinal, 9, at + UNIT) == 0 && ordinal == 1);
	CHECK(CU(cuMemUnmap, at, 2 * UNIT) == 0 && CU(cuMemRelease, physical) == 0 && CU(cuMemAddressFree, at, 4 * UNIT) == 0);

	CHECK(CU(cuMemFree_v2, p) == 0 && CU(cuMemFreeAsync, q, 0) == 0);
	CHECK(CU(cuMemFree_v2, 0) == 0 && CU(cuMemFreeHost, 0) == 0 && CU(cuMemFreeAsync, 0, 0) == 0);
}

static void *other_thread(void *context)
{
	CUdeviceptr p;
	CHECK(CU(cuMemAlloc_v2, &p, 1) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(CU(cuCtxSetCurrent, context) == 0);
	CHECK(CU(cuMemAlloc_v2, &p, 10) == 0);
	return NULL;
}

static void contexts(void)
{
	CUcontext primary = start(0), own, top, same;
	CUdeviceptr p, q;
	CUarray a;
	CUDA_ARRAY_DESCRIPTOR flat = {8, 8, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	static char mine[512];
	pthread_t t;

	tag(1);
	CHECK(CU(cuMemAlloc_v2, &p, 1000) == 0);
	CHECK(CU(cuCtxCreate_v3, &own, 0, 0, 0, 1) == 0); /* on device 1, now current */
	tag(2);
	CHECK(CU(cuMemAlloc_v2, &q, 100) == 0 && CU(cuMemAllocManaged, &q, 50, 1) == 0);
	CHECK(CU(cuMemAllocAsync, &q, 30, 0) == 0 && CU(cuArrayCreate_v2, &a, &flat) == 0);
	CHECK(CU(cuMemAllocHost_v2, &q, 20) == 0 && CU(cuMemHostRegister, mine, 512, 0) == 0);
	CHECK(pthread_create(&t, NULL, other_thread, (void *)own) == 0 && pthread_join(t, NULL) == 0);
	CHECK(CU(cuMemFree_v2, p) == 0); /* of the other context: any may */
	tag(3);
	CHECK(CU(cuCtxPushCurrent_v2, own) == 0 && CU(cuCtxDestroy_v2, primary) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(CU(cuCtxDestroy_v2, own) == 0); /* popped once, its number is below */
	CHECK(CU(cuMemAlloc_v2, &p, 10) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK(CU(cuCtxPopCurrent_v2, &top) == 0 && top == own);
	CHECK(CU(cuCtxGetCurrent, &top) == 0 && top == primary);
	tag(4);
	CHECK(CU(cuMemAlloc_v2, &p, 7) == 0 && CU(cuDevicePrimaryCtxReset_v2, 0) == 0);
	CHECK(CU(cuMemAlloc_v2, &p, 8) == 0); /* still retained */
	CHECK(CU(cuDevicePrimaryCtxRetain, &same, 0) == 0 && same == primary);
	CHECK(CU(cuDevicePrimaryCtxRelease_v2, 0) == 0 && CU(cuMemFree_v2, p) == 0);
	CHECK(CU(cuMemAlloc_v2, &p, 9) == 0 && CU(cuDevicePrimaryCtxRelease_v2, 0) == 0);
	CHECK(CU(cuDevicePrimaryCtxRelease_v2, 0) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(CU(cuMemAlloc_v2, &p, 9) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK(CU(cuCtxSetCurrent, 0) == 0);
}

static void nested(void)
{
	CUdeviceptr p;
	start(0);
	tag(1);
	CHECK(CU(cuMemAllocManaged, &p, 100, 1) == 0 && CU(cuMemFreeAsync, p, 0) == 0);
	CHECK(CU(cuMemFreeAsync, p, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemAllocManaged, &p, 100, 1) == 0);
	CHECK(CU(cuMemAlloc_v2, &p, 10) == 0);
}

/* With SIMCUDA_FAIL_EVERY=3 and the two calls of start(). */
static void injected(void)
{
	CUdeviceptr p = 0;
	start(0);
	CHECK(CU(cuMemAlloc_v2, &p, 10) == CUDA_ERROR_UNKNOWN && !p);
	CHECK(CU(cuMemAlloc_v2, &p, 10) == 0 && CU(cuMemAlloc_v2, &p, 10) == 0);
	CHECK(CU(cuMemFree_v2, p) == CUDA_ERROR_UNKNOWN && CU(cuMemFree_v2, p) == 0);
}

/* More records than one mapped window holds, then no farewell. */
static void killed(void)
{
	CUdeviceptr p;
	start(0);
	for (int i = 0; i < 40000; i++)
		CHECK(CU(cuMemAlloc_v2, &p, 1) == 0);
	raise(SIGKILL);
}

static void forked(void)
{
	CUdeviceptr p;
	start(0);
	CHECK(CU(cuMemAlloc_v2, &p, 11) == 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK(CU(cuMemFree_v2, p) == CUDA_ERROR_NOT_INITIALIZED);
		start(1);
		CHECK(CU(cuMemFree_v2, p) == CUDA_ERROR_INVALID_VALUE); /* the parent's */
		CHECK(CU(cuMemAlloc_v2, &p, 22) == 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(CU(cuMemAlloc_v2, &p, 33) == 0);
}

static void *pairs(void *context)
{
	CUdeviceptr p;
	int (*alloc)(CUdeviceptr *, size_t) = (void *)dlsym(library, "cuMemAlloc_v2");
	int (*release)(CUdeviceptr) = (void *)dlsym(library, "cuMemFree_v2");
	CHECK(CU(cuCtxSetCurrent, context) == 0);
	for (int i = 0; i < 50000; i++)
		CHECK(alloc(&p, 1 + i % 5000) == 0 && release(p) == 0);
	return NULL;
}

static void threads(void)
{
	CUcontext c = start(0);
	pthread_t t[8];
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&t[i], NULL, pairs, (void *)c) == 0);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = {
		{"semantics", semantics}, {"vmm", vmm}, {"contents", contents},	      {"contexts", contexts},
		{"nested", nested},	  {"injected", injected}, {"killed", killed},
		{"forked", forked},	  {"threads", threads},
	};
	if (argc != 3 || !(library = dlopen(argv[1], RTLD_NOW))) {
		fprintf(stderr, "usage: driver_test LIBRARY SCENARIO: %s\n", dlerror());
		return 2;
	}
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (!strcmp(argv[2], scenarios[i].name)) {
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "no scenario %s\n", argv[2]);
	return 2;
}
