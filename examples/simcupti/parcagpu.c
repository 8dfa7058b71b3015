/* SPDX-License-Identifier: Apache-2.0 */

/*
 * simcupti: libparcagpucupti.so without CUPTI and without a GPU: the probes of that
 * library, by their names and arguments, for the launches of the simulated driver. See
 * README.md.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../simcuda/observer.h"
#include "probe.h"

PROBE_SEMAPHORE(parcagpu, cuda_correlation);
PROBE_SEMAPHORE(parcagpu, kernel_executed);

#define EXPORT __attribute__((visibility("default")))
#define MAX_STREAMS 64
#define BUFFERED_NS 1000000000 /* how long a kernel that has ended waits to be told of */

/* As CUPTI numbers the functions; negative: of the driver. */
enum { DRIVER_LAUNCH = -307, DRIVER_GRAPH = -514, RUNTIME_LAUNCH = 211, RUNTIME_GRAPH = 311 };

struct kernel {
	struct kernel *next;
	uint64_t start, end, node;
	uint32_t correlation, device, stream, graph;
	char name[];
};

struct stream {
	uint64_t handle, free_ns; /* when what it was given so far is done */
	int32_t device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel *first, **last = &first;
static struct stream streams[MAX_STREAMS];
static unsigned stream_count, telling; /* of how many kernels, just now */
static FILE *journal;
static uint64_t every = 1, clock_ns; /* clock_ns: added to CLOCK_REALTIME */
static bool by_runtime, held;
static __thread uint64_t launches;

/* What the runtime will tell of, when it returns. */
static __thread struct {
	uint32_t correlation;
	bool graph;
	char name[256];
} returning;

static uint64_t device_clock(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + clock_ns;
}

__attribute__((noinline)) static void tell_correlation(uint32_t correlation, int32_t function,
							const char *name)
{
	if (journal)
		fprintf(journal, "{\"what\":\"correlation\",\"correlation\":%u,\"tid\":%ld,\"name\":\"%s\"}\n",
			correlation, syscall(SYS_gettid), name);
	PROBE3(parcagpu, cuda_correlation, 4, correlation, -4, function, 8, name);
}

__attribute__((noinline)) static void tell_kernel(const struct kernel *k)
{
	const char *name = k->name;

	if (journal)
		fprintf(journal,
			"{\"what\":\"kernel\",\"start\":%lu,\"end\":%lu,\"correlation\":%u,\"device\":%u,"
			"\"stream\":%u,\"graph\":%u,\"node\":%lu,\"name\":\"%s\",\"heard\":%s}\n",
			k->start, k->end, k->correlation, k->device, k->stream, k->graph, k->node, name,
			PROBE_ENABLED(parcagpu, kernel_executed) ? "true" : "false");
	PROBE8(parcagpu, kernel_executed, 8, k->start, 8, k->end, 4, k->correlation, 4, k->device, 4,
	       k->stream, 4, k->graph, 8, k->node, 8, name);
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

/* A kernel takes as long as its grid is large: 100 ns for each block and 1 µs. */
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

static void returns(const struct simcuda_launch *l)
{
	const char *name = l->kernel ? l->kernel : "cudaGraphLaunch";
	char node[32];

	if (!PROBE_ENABLED(parcagpu, cuda_correlation) || ++launches % every)
		return;
	if (by_runtime) {
		returning.correlation = l->correlation;
		returning.graph = !l->kernel;
		snprintf(returning.name, sizeof(returning.name), "%s", name);
	} else {
		tell_correlation(l->correlation, l->kernel ? DRIVER_LAUNCH : DRIVER_GRAPH, name);
	}
	pthread_mutex_lock(&lock);
	if (l->kernel)
		execute(l, name, 0);
	for (uint64_t n = 0; n < l->nodes; n++) {
		snprintf(node, sizeof(node), "node_%lu", n);
		execute(l, node, n + 1);
	}
	pthread_mutex_unlock(&lock);
}

/* For a program that stands in for the runtime: its call is about to return. */
EXPORT void simcupti_runtime_returns(void)
{
	if (!returning.correlation)
		return;
	tell_correlation(returning.correlation, returning.graph ? RUNTIME_GRAPH : RUNTIME_LAUNCH,
			 returning.name);
	returning.correlation = 0;
}

/* How many listen to both probes. */
EXPORT unsigned simcupti_listeners(void)
{
	return parcagpu_cuda_correlation_semaphore + parcagpu_kernel_executed_semaphore;
}

/* As another listener does, who is there before and after. */
EXPORT void simcupti_listen(int more)
{
	parcagpu_cuda_correlation_semaphore += (unsigned short)more;
	parcagpu_kernel_executed_semaphore += (unsigned short)more;
}

/* Tells of kernels that ended a while ago, whose call has returned long since; `all`: of
 * each, and waits for those that have not ended. */
static void tell(bool all)
{
	struct timespec pause = {0, 1000000};
	struct kernel *k;

	for (;;) {
		pthread_mutex_lock(&lock);
		k = first;
		if (k && !all && k->end + BUFFERED_NS > device_clock())
			k = NULL;
		if (k) {
			telling++;
			if (!(first = k->next))
				last = &first;
		}
		pthread_mutex_unlock(&lock);
		if (!k)
			return;
		while (k->end > device_clock())
			nanosleep(&pause, NULL);
		tell_kernel(k);
		free(k);
		pthread_mutex_lock(&lock);
		telling--;
		pthread_mutex_unlock(&lock);
	}
}

/* CUPTI hands buffers over a lot at a time, on a thread of its own. */
static void *teller(void *unused)
{
	struct timespec pause = {0, 20000000};

	(void)unused;
	for (;;) {
		nanosleep(&pause, NULL);
		if (!held)
			tell(false);
		if (journal)
			fflush(journal);
	}
	return NULL;
}

/* Returns when all that was launched was told of, and is in the journal. */
EXPORT void simcupti_flush(void)
{
	struct timespec pause = {0, 1000000};
	bool done = false;

	tell(true);
	while (!done) {
		pthread_mutex_lock(&lock);
		done = !telling; /* by the other thread, which may have no CPU */
		pthread_mutex_unlock(&lock);
		if (!done)
			nanosleep(&pause, NULL);
	}
	if (journal)
		fflush(journal);
}

EXPORT int InitializeInjection(void)
{
	const char *path = getenv("SIMCUPTI_JOURNAL"), *n = getenv("SIMCUPTI_EVERY");
	const char *runtime = getenv("SIMCUPTI_RUNTIME"), *offset = getenv("SIMCUPTI_CLOCK_NS");
	const char *hold = getenv("SIMCUPTI_HOLD");
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); /* perhaps not global */
	void (*observe)(void (*)(const struct simcuda_launch *)) =
		driver ? (void (*)(void (*)(const struct simcuda_launch *)))dlsym(driver, "simcuda_observe") : NULL;
	pthread_t thread;

	if (!observe)
		return 0;
	if (path && *path && !(journal = fopen(path, "w")))
		return 0;
	if (n && atoi(n) > 0)
		every = (uint64_t)atoi(n);
	clock_ns = offset ? strtoull(offset, NULL, 10) : 0;
	by_runtime = runtime && atoi(runtime);
	held = hold && atoi(hold);
	if (pthread_create(&thread, NULL, teller, NULL))
		return 0;
	pthread_detach(thread);
	observe(returns);
	return 1;
}
