/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

#define MAX_STREAMS 64
#define BUFFERED_NS 1000000000 /* delay until a kernel that has ended is reported */

struct stream {
	uint64_t handle, free_ns; /* when its work so far is done */
	int32_t device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel *first, **last = &first;
static struct stream streams[MAX_STREAMS];
static unsigned stream_count, taken; /* taken: kernels that are not reported yet */
static FILE *journal;
static uint64_t clock_ns; /* added to CLOCK_REALTIME */

static uint64_t device_clock(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + clock_ns;
}

static unsigned stream_of(int32_t device, uint64_t handle)
{
	unsigned n = 0;

	while (n < stream_count && (streams[n].handle != handle || streams[n].device != device))
		n++;
	if (n == stream_count && n < MAX_STREAMS)
		streams[stream_count++] = (struct stream){.handle = handle, .device = device};
	return n % MAX_STREAMS;
}

static void execute(const struct simcuda_launch *l, const char *name, uint64_t node)
{
	struct kernel *k = malloc(sizeof(*k) + strlen(name) + 1);
	unsigned n = stream_of(l->device, l->stream);
	struct stream *s = &streams[n];
	uint64_t now = device_clock() + 2000; /* the way to the device */

	if (!k)
		return;
	*k = (struct kernel){.node = node, .correlation = l->correlation, .device = (uint32_t)l->device,
			     .stream = n + 7, .graph = (uint32_t)l->graph};
	strcpy(k->name, name);
	k->start = s->free_ns > now ? s->free_ns : now;
	k->end = k->start + 1000 + 100 * (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
	s->free_ns = k->end;
	*last = k;
	last = &k->next;
}

void device_launch(const struct simcuda_launch *l)
{
	char node[32];

	pthread_mutex_lock(&lock);
	if (l->kernel)
		execute(l, l->kernel, 0);
	for (uint64_t n = 0; n < l->nodes; n++) {
		snprintf(node, sizeof(node), "node_%lu", n);
		execute(l, node, n + 1);
	}
	pthread_mutex_unlock(&lock);
}

struct kernel *device_next(bool all)
{
	struct timespec pause = {0, 1000000};
	struct kernel *k;

	pthread_mutex_lock(&lock);
	k = first;
	if (k && !all && k->end + BUFFERED_NS > device_clock())
		k = NULL;
	if (k) {
		taken++;
		if (!(first = k->next))
			last = &first;
	}
	pthread_mutex_unlock(&lock);
	while (k && k->end > device_clock())
		nanosleep(&pause, NULL);
	return k;
}

void device_reported(struct kernel *k, bool heard)
{
	if (journal)
		fprintf(journal,
			"{\"what\":\"kernel\",\"start\":%lu,\"end\":%lu,\"correlation\":%u,\"device\":%u,"
			"\"stream\":%u,\"graph\":%u,\"node\":%lu,\"name\":\"%s\",\"heard\":%s}\n",
			k->start, k->end, k->correlation, k->device, k->stream, k->graph, k->node,
			k->name, heard ? "true" : "false");
	free(k);
	pthread_mutex_lock(&lock);
	taken--;
	pthread_mutex_unlock(&lock);
}

void device_settle(void)
{
	struct timespec pause = {0, 1000000};
	bool done = false;

	while (!done) {
		pthread_mutex_lock(&lock);
		done = !taken; /* by the other thread, which may have no CPU */
		pthread_mutex_unlock(&lock);
		if (!done)
			nanosleep(&pause, NULL);
	}
	if (journal)
		fflush(journal);
}

void device_correlated(uint32_t correlation, const char *name)
{
	if (journal)
		fprintf(journal, "{\"what\":\"correlation\",\"correlation\":%u,\"tid\":%ld,\"name\":\"%s\"}\n",
			correlation, syscall(SYS_gettid), name);
}

bool device_begin(void (*returns)(const struct simcuda_launch *))
{
	const char *path = getenv("SIMCUPTI_JOURNAL"), *offset = getenv("SIMCUPTI_CLOCK_NS");
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); /* perhaps not global */
	void (*observe)(void (*)(const struct simcuda_launch *)) =
		driver ? (void (*)(void (*)(const struct simcuda_launch *)))dlsym(driver, "simcuda_observe") : NULL;

	if (!observe)
		return false;
	if (path && *path && !(journal = fopen(path, "w")))
		return false;
	clock_ns = offset ? strtoull(offset, NULL, 10) : 0;
	observe(returns);
	return true;
}
