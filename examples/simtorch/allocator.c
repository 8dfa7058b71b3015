/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libc10_cuda.so: a caching allocator on top of libcuda.so.1, which reports to libc10.so
 * like PyTorch's: under its lock, for every block that it allocates or frees, with the
 * pool's totals; and before it fails. See README.md.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../../bpf/memory/apis.h"
#include "../simcuda/journal.h"
#include "../simcupti/probe.h"
#include "c10.h"
#include "driver.h"
#include "pool.h"

#define EXPORTED __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct pool pools[MAX_DEVICES];
static uint64_t serial;
static uint64_t odd;  /* SIMTORCH_ODD_REQUESTS: each odd-th request is announced wrongly */
static bool is_async; /* backend:cudaMallocAsync: the driver's pool, and no report */
static __thread uint64_t tag;

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}
static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}
static void in_child(void)
{
	journal_forked();
	pthread_mutex_unlock(&lock);
}

static void start(void)
{
	const char *settings = getenv("PYTORCH_CUDA_ALLOC_CONF");
	bool is_expandable = settings && strstr(settings, "expandable_segments:True");

	is_async = settings && strstr(settings, "backend:cudaMallocAsync");
	if (getenv("SIMTORCH_ODD_REQUESTS"))
		odd = strtoull(getenv("SIMTORCH_ODD_REQUESTS"), NULL, 10);
	driver_start();
	for (int device = 0; device < MAX_DEVICES; device++) {
		pools[device].device = device;
		pools[device].is_expandable = is_expandable;
	}
	journal_setup(getenv("SIMTORCH_JOURNAL"), MAX_DEVICES, 0);
	pthread_atfork(before_fork, after_fork, in_child);
}

static __attribute__((destructor)) void finish(void)
{
	journal_flush();
}

/* Makes the device current. False: there is none. */
static bool use(int device)
{
	pthread_once(&once, start);
	return driver_use(device);
}

static void note(enum journal_type type, int device, const struct block *b, uint64_t of, int result)
{
	struct journal_record r = {
		.seq = ++serial,
		.tag = tag,
		.ptr = b->pointer,
		.size = b->size,
		.alloc_seq = of,
		.result = result,
		.device = device,
		.type = type,
		.kind = KIND_TENSOR,
		.flags = JOURNAL_FIRST,
	};
	if (journal_on())
		journal_write(&r);
}

/* Tags the calling thread's records in the journal, and in that of simcuda. */
EXPORTED void simtorch_tag(uint64_t value)
{
	pthread_once(&once, start);
	tag = value;
	if (driver.tag)
		driver.tag(value);
}

/*
 * The static probes of PyTorch 2.2 and newer, on x86-64, without the lock: what a tensor
 * requested, after its block was reported, and that it is freed, before. raw_alloc() has none.
 */
#if defined(__x86_64__) && !defined(TORCH_1) && !defined(TORCH_1_8)
PROBE_SEMAPHORE(pytorch, malloc);
PROBE_SEMAPHORE(pytorch, free);

static __attribute__((noinline)) void announce(void *pointer, int8_t device, uint64_t size,
					       int64_t stream)
{
	static uint64_t requests;

	if (odd && __atomic_add_fetch(&requests, 1, __ATOMIC_RELAXED) % odd == 0)
		size += 1ull << 40;
	PROBE4(pytorch, malloc, 8, pointer, -1, device, 8, size, 8, stream);
}

static void requested(void *pointer, int device, uint64_t size, unsigned stream)
{
	if (pointer && size && PROBE_ENABLED(pytorch, malloc))
		announce(pointer, (int8_t)device, size, stream);
}

static void freeing(void *pointer)
{
	if (PROBE_ENABLED(pytorch, free))
		PROBE1(pytorch, free, 8, pointer);
}
#else
static void requested(void *pointer, int device, uint64_t size, unsigned stream)
{
}
static void freeing(void *pointer)
{
}
#endif

/* A block of at least `size` bytes of the device's pool, for work of a stream (0 to 63);
 * NULL: out of memory. */
static void *block_on(int device, uint64_t size, unsigned stream)
{
	struct c10_device where = {C10_GPU, (int8_t)device};
	struct pool *pool;
	struct block *b;
	void *pointer = NULL;

	pthread_mutex_lock(&lock);
	if (stream < POOL_STREAMS && use(device) && is_async) {
		uint64_t address;

		if (!driver.alloc_async(&address, pool_rounded(size), NULL))
			pointer = (void *)address;
	} else if (stream < POOL_STREAMS && use(device)) {
		pool = &pools[device];
		b = pool_out(pool, size, stream);
		if (b) {
			pointer = (void *)b->pointer;
			b->serial = serial + 1;
			note(JOURNAL_ALLOC, device, b, 0, 0);
			REPORT_BLOCK(pointer, (int64_t)b->size, pool->allocated, pool->reserved,
				     where);
		} else {
			struct block refused = {.size = size};

			note(JOURNAL_CALL, device, &refused, 0, 2 /* CUDA_ERROR_OUT_OF_MEMORY */);
			REPORT_OOM((int64_t)size, pool->allocated, pool->reserved, where);
		}
	}
	pthread_mutex_unlock(&lock);
	return pointer;
}

/* The same for a tensor, which announces what it requests. */
EXPORTED void *simtorch_malloc_on(int device, uint64_t size, unsigned stream)
{
	void *pointer = block_on(device, size, stream);

	requested(pointer, device, size, stream);
	return pointer;
}

/* As raw_alloc() of PyTorch's allocator, which allocates without a tensor: without the probe. */
EXPORTED void *simtorch_raw_alloc(int device, uint64_t size)
{
	return block_on(device, size, 0);
}

/* simtorch_malloc_on() the default stream. */
EXPORTED void *simtorch_malloc(int device, uint64_t size)
{
	return simtorch_malloc_on(device, size, 0);
}

/* Another stream uses the block, as by Tensor.record_stream(). 0, or -1: there is none. */
EXPORTED int simtorch_record_stream(int device, void *pointer, unsigned stream)
{
	struct block *b = NULL;

	pthread_mutex_lock(&lock);
	if (stream < POOL_STREAMS && use(device))
		b = pool_find(&pools[device], (uint64_t)pointer);
	if (b)
		b->used_by |= 1ull << stream;
	pthread_mutex_unlock(&lock);
	return b ? 0 : -1;
}

/* All work of the stream is done: freed blocks that it used can be allocated again. */
EXPORTED void simtorch_synchronize(int device, unsigned stream)
{
	pthread_mutex_lock(&lock);
	if (stream < POOL_STREAMS && use(device))
		pool_synchronize(&pools[device], stream);
	pthread_mutex_unlock(&lock);
}

/* Frees a block. 0, or -1: there is none at this address. As in PyTorch's pool, the driver is not called: also in
 * a child that was forked, which cannot. */
EXPORTED int simtorch_free(int device, void *pointer)
{
	struct c10_device where = {C10_GPU, (int8_t)device};
	struct block *b = NULL;
	struct pool *pool;
	uint64_t size;

	freeing(pointer);
	pthread_mutex_lock(&lock);
	if (is_async && use(device)) {
		int err = driver.free_async((uint64_t)pointer, NULL);

		pthread_mutex_unlock(&lock);
		return err ? -1 : 0;
	}
	if (device >= 0 && device < MAX_DEVICES) {
		pool = &pools[device];
		b = pool_find(pool, (uint64_t)pointer);
	}
	if (b) {
		size = b->size;
		note(JOURNAL_FREE, device, b, b->serial, 0);
		pool_back(pool, b);
		REPORT_BLOCK(pointer, -(int64_t)size, pool->allocated, pool->reserved, where);
	}
	pthread_mutex_unlock(&lock);
	return b ? 0 : -1;
}

/* Gives unused segments back to the driver: bytes. */
EXPORTED uint64_t simtorch_empty_cache(int device)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&lock);
	if (use(device))
		bytes = pool_trim(&pools[device]);
	pthread_mutex_unlock(&lock);
	return bytes;
}

/*
 * A graph is captured on the stream, as by torch.cuda.graph(): its blocks come from a
 * private pool (1 to 63) until simtorch_end_capture(), and the segments of that stay
 * reserved, whatever is in use of them, until simtorch_release_pool(). 0, or -1.
 */
EXPORTED int simtorch_begin_capture(int device, unsigned private, unsigned stream)
{
	int result = -1;

	pthread_mutex_lock(&lock);
	if (stream < POOL_STREAMS && private && private < POOL_PRIVATE && use(device) &&
	    !pools[device].capturing) {
		pools[device].capturing = private;
		pools[device].captured_stream = stream;
		pools[device].graphs |= 1ull << private;
		result = 0;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

EXPORTED void simtorch_end_capture(int device)
{
	pthread_mutex_lock(&lock);
	if (use(device))
		pools[device].capturing = 0;
	pthread_mutex_unlock(&lock);
}

/* The graphs of the private pool are destroyed: its free memory can be released. */
EXPORTED void simtorch_release_pool(int device, unsigned private)
{
	pthread_mutex_lock(&lock);
	if (private && private < POOL_PRIVATE && use(device))
		pools[device].graphs &= ~(1ull << private);
	pthread_mutex_unlock(&lock);
}

/* As torch.cuda.memory_allocated() and memory_reserved(). */
EXPORTED uint64_t simtorch_allocated(int device)
{
	return pools[device & (MAX_DEVICES - 1)].allocated;
}
EXPORTED uint64_t simtorch_reserved(int device)
{
	return pools[device & (MAX_DEVICES - 1)].reserved;
}
