/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The memory that NCCL takes from the driver for a communicator (SIMNCCL_MEMORY): when it is
 * made, at its first operation, and on threads of its own. As the real library: with the
 * virtual memory API, in which each buffer is physical memory and its mapping, or as cudaMalloc;
 * of pinned host memory; in a group, on a thread for each communicator. Sizes are different for
 * each communicator and phase, and have no other meaning.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exports.h"

#ifdef RCCL /* it has other functions below it */
void memory_setup(void)
{
}
bool memory_on(void)
{
	return false;
}
void memory_device(int device)
{
	(void)device;
}
void memory_born(ncclComm_t c)
{
	(void)c;
}
void memory_used(ncclComm_t const *all, size_t count, bool grouped)
{
	(void)all, (void)count, (void)grouped;
}
void memory_gone(ncclComm_t c)
{
	(void)c;
}
bool memory_alloc(void **out, size_t bytes)
{
	(void)out, (void)bytes;
	return false;
}
bool memory_free(void *p)
{
	(void)p;
	return false;
}
#else

#define GRANULE (2ull << 20)

/* cuda.h */
struct location {
	int type, id;
};
struct properties {
	int type, handles;
	struct location location;
	void *win32;
	uint8_t flags[8];
};
struct access {
	struct location location;
	int flags;
};

static struct {
	bool on, vmm, names;
	int (*create)(uint64_t *, size_t, const void *, unsigned long long);
	int (*reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
	int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
	int (*access)(uint64_t, size_t, const void *, size_t);
	int (*unmap)(uint64_t, size_t);
	int (*unreserve)(uint64_t, size_t);
	int (*release)(uint64_t);
	int (*alloc)(uint64_t *, size_t);
	int (*free)(uint64_t);
	int (*pin)(void **, size_t, unsigned);
	int (*unpin)(void *);
	int (*context)(void **);
	int (*use)(void *);
	int (*primary)(void **, int);
	void (*tag)(uint64_t);
} driver;

/* One buffer, in a list of its communicator's. */
struct buffer {
	struct buffer *next;
	uint64_t pointer, size;
	enum { DEVICE, MAPPED, PINNED } kind;
};

/* A communicator's buffers, and its threads. */
struct memory {
	uint64_t serial;
	void *context;
	int device;
	bool used;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct buffer *buffers;
	uint64_t wanted; /* bytes that the service thread is to allocate; 0: none */
	bool ends;
	pthread_t service, progress;
};

/* Of ncclMemAlloc. */
static struct memory loose = {.device = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

void memory_setup(void)
{
	const char *how = getenv("SIMNCCL_MEMORY");
	if (!how || !*how)
		return;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	static const struct {
		void *to;
		const char *name;
	} all[] = {
		{&driver.create, "cuMemCreate"},   {&driver.reserve, "cuMemAddressReserve"},
		{&driver.map, "cuMemMap"},	   {&driver.access, "cuMemSetAccess"},
		{&driver.unmap, "cuMemUnmap"},	   {&driver.unreserve, "cuMemAddressFree"},
		{&driver.release, "cuMemRelease"}, {&driver.alloc, "cuMemAlloc_v2"},
		{&driver.free, "cuMemFree_v2"},	   {&driver.pin, "cuMemHostAlloc"},
		{&driver.unpin, "cuMemFreeHost"},  {&driver.context, "cuCtxGetCurrent"},
		{&driver.use, "cuCtxSetCurrent"},  {&driver.primary, "cuDevicePrimaryCtxRetain"},
		{&driver.tag, "simcuda_tag"},
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!lib || !(*(void **)all[i].to = dlsym(lib, all[i].name))) {
			fprintf(stderr, "simnccl: SIMNCCL_MEMORY needs the simulated driver\n");
			return;
		}
	driver.vmm = !strcmp(how, "vmm") || !strcmp(how, "vmm,named");
	driver.names = strstr(how, ",named") != NULL;
	driver.on = true;
}

bool memory_on(void)
{
	return driver.on;
}

static void must(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "simnccl: %s: error %d of the driver\n", what, result);
	abort();
}

void memory_device(int device)
{
	void *context;
	must(driver.primary(&context, device), "cuDevicePrimaryCtxRetain");
	must(driver.use(context), "cuCtxSetCurrent");
}

/* Allocates, with MEMORY_TAG in the journal. */
static uint64_t take(struct memory *m, enum memory_phase phase, int kind, uint64_t size)
{
	struct buffer *b = calloc(1, sizeof(*b));
	if (!b)
		abort();
	b->kind = kind;
	b->size = size;
	driver.tag(MEMORY_TAG(phase, m->serial));
	if (kind == PINNED) {
		must(driver.pin((void **)&b->pointer, size, 0), "cuMemHostAlloc");
	} else if (kind == DEVICE) {
		must(driver.alloc(&b->pointer, size), "cuMemAlloc");
	} else {
		uint64_t handle;
		struct properties p = {
			.type = 1, .location = {1, m->device < 0 ? current_device() : m->device}};
		struct access a = {.location = p.location, .flags = 3};
		b->size = size = (size + GRANULE - 1) / GRANULE * GRANULE;
		must(driver.create(&handle, size, &p, 0), "cuMemCreate");
		must(driver.reserve(&b->pointer, size, GRANULE, 0, 0), "cuMemAddressReserve");
		must(driver.map(b->pointer, size, 0, handle, 0), "cuMemMap");
		must(driver.access(b->pointer, size, &a, 1), "cuMemSetAccess");
		must(driver.release(handle), "cuMemRelease"); /* its mapping keeps it */
	}
	driver.tag(0);
	pthread_mutex_lock(&m->lock);
	b->next = m->buffers;
	m->buffers = b;
	pthread_mutex_unlock(&m->lock);
	return b->pointer;
}

static void give_back(struct buffer *b)
{
	if (b->kind == PINNED) {
		must(driver.unpin((void *)b->pointer), "cuMemFreeHost");
	} else if (b->kind == DEVICE) {
		must(driver.free(b->pointer), "cuMemFree");
	} else {
		must(driver.unmap(b->pointer, b->size), "cuMemUnmap");
		must(driver.unreserve(b->pointer, b->size), "cuMemAddressFree");
	}
	free(b);
}

static int large(void)
{
	return driver.vmm ? MAPPED : DEVICE;
}

static void named(const char *name)
{
	if (driver.names)
		pthread_setname_np(pthread_self(), name);
}

/* The thread that moves data: it needs pinned memory. */
static void *progress(void *arg)
{
	struct memory *m = arg;
	named("NCCL Progress 0");
	must(driver.use(m->context), "cuCtxSetCurrent");
	take(m, MEMORY_THREAD, PINNED, 4096 * (1 + m->serial));
	return NULL;
}

/* The thread that serves others: it allocates what they ask for, until the end. */
static void *service(void *arg)
{
	struct memory *m = arg;
	named("NCCL Service 0");
	must(driver.use(m->context), "cuCtxSetCurrent");
	if (pthread_create(&m->progress, NULL, progress, m))
		abort();
	pthread_join(m->progress, NULL);
	pthread_mutex_lock(&m->lock);
	for (;;) {
		uint64_t wanted = m->wanted;
		if (wanted) {
			pthread_mutex_unlock(&m->lock);
			take(m, MEMORY_THREAD, large(), wanted);
			pthread_mutex_lock(&m->lock);
			m->wanted = 0;
			pthread_cond_broadcast(&m->changed);
		} else if (m->ends) {
			break;
		} else {
			pthread_cond_wait(&m->changed, &m->lock);
		}
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/* Has the service thread allocate, and waits for it. */
static void request(struct memory *m, uint64_t bytes)
{
	pthread_mutex_lock(&m->lock);
	m->wanted = bytes;
	pthread_cond_broadcast(&m->changed);
	while (m->wanted)
		pthread_cond_wait(&m->changed, &m->lock);
	pthread_mutex_unlock(&m->lock);
}

/* On the calling thread, or on a job of its group. */
void memory_born(ncclComm_t c)
{
	if (!driver.on)
		return;
	struct memory *m = calloc(1, sizeof(*m));
	enum memory_phase phase;
	if (!m)
		abort();
	m->serial = c->serial;
	m->device = c->cudaDev;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->changed, NULL);
	must(driver.context(&m->context), "cuCtxGetCurrent");
	phase = thread.is_job ? MEMORY_JOB : MEMORY_INIT;
	c->memory = m;
	take(m, phase, large(), GRANULE * (1 + m->serial % 5));
	take(m, phase, DEVICE, 512 * m->serial);
	take(m, phase, PINNED, 1024 * m->serial);
	if (pthread_create(&m->service, NULL, service, m))
		abort();
	request(m, GRANULE * (2 + m->serial % 3));
}

static void *first_use(void *arg)
{
	struct memory *m = arg;
	must(driver.use(m->context), "cuCtxSetCurrent");
	take(m, MEMORY_JOB, large(), GRANULE * (3 + m->serial % 7));
	request(m, GRANULE * (1 + m->serial % 2));
	return NULL;
}

/* Before operations of these communicators, or the end of their group. */
void memory_used(ncclComm_t const *all, size_t count, bool grouped)
{
	for (size_t i = 0; driver.on && i < count; i++) {
		struct memory *m = all[i]->memory;
		pthread_t job;
		if (!m || m->used)
			continue;
		m->used = true;
		if (!grouped) {
			take(m, MEMORY_OPERATION, large(), GRANULE * (4 + m->serial % 4));
			request(m, GRANULE * (1 + m->serial % 2));
		} else if (pthread_create(&job, NULL, first_use, m) || pthread_join(job, NULL)) {
			abort();
		}
	}
}

void memory_gone(ncclComm_t c)
{
	struct memory *m = c->memory;
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->ends = true;
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
	pthread_join(m->service, NULL);
	for (struct buffer *b = m->buffers, *next; b; b = next) {
		next = b->next;
		give_back(b);
	}
	free(m);
}

/* ncclMemAlloc, which belongs to no communicator. */
bool memory_alloc(void **out, size_t bytes)
{
	if (!driver.on)
		return false;
	*out = (void *)take(&loose, MEMORY_FOR_PROGRAM, MAPPED, bytes);
	return true;
}

bool memory_free(void *p)
{
	struct buffer **at = &loose.buffers, *b;
	if (!driver.on)
		return false;
	pthread_mutex_lock(&loose.lock);
	while (*at && (*at)->pointer != (uint64_t)p)
		at = &(*at)->next;
	b = *at;
	if (b)
		*at = b->next;
	pthread_mutex_unlock(&loose.lock);
	if (b)
		give_back(b);
	return true;
}
#endif
