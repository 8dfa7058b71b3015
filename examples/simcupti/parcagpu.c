/* SPDX-License-Identifier: Apache-2.0 */

/*
 * parcagpu: libparcagpucupti.so without CUPTI and without a GPU: the probes of that
 * library, by their names and arguments, for the launches of the simulated driver. See
 * README.md.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device.h"
#include "probe.h"

PROBE_SEMAPHORE(parcagpu, cuda_correlation);
PROBE_SEMAPHORE(parcagpu, kernel_executed);

#define EXPORT __attribute__((visibility("default")))

/* As CUPTI numbers the functions; negative: of the driver. */
enum { DRIVER_LAUNCH = -307, DRIVER_GRAPH = -514, RUNTIME_LAUNCH = 211, RUNTIME_GRAPH = 311 };

static uint64_t every = 1;
static bool by_runtime, held;
static __thread uint64_t launches;

/* The launch that the runtime will report when it returns. */
static __thread struct {
	uint32_t correlation;
	bool graph;
	char name[256];
} returning;

__attribute__((noinline)) static void report_correlation(uint32_t correlation, int32_t function,
							const char *name)
{
	device_correlated(correlation, name);
	PROBE3(parcagpu, cuda_correlation, 4, correlation, -4, function, 8, name);
}

__attribute__((noinline)) static void report_kernel(struct kernel *k)
{
	bool heard = PROBE_ENABLED(parcagpu, kernel_executed);
	const char *name = k->name;

	PROBE8(parcagpu, kernel_executed, 8, k->start, 8, k->end, 4, k->correlation, 4, k->device, 4,
	       k->stream, 4, k->graph, 8, k->node, 8, name);
	device_reported(k, heard);
}

static void returns(const struct simcuda_launch *l)
{
	const char *name = l->kernel ? l->kernel : "cudaGraphLaunch";

	if (!PROBE_ENABLED(parcagpu, cuda_correlation) || ++launches % every)
		return;
	if (by_runtime) {
		returning.correlation = l->correlation;
		returning.graph = !l->kernel;
		snprintf(returning.name, sizeof(returning.name), "%s", name);
	} else {
		report_correlation(l->correlation, l->kernel ? DRIVER_LAUNCH : DRIVER_GRAPH, name);
	}
	device_launch(l);
}

/* For a program that simulates the runtime: its call is about to return. */
EXPORT void simcupti_runtime_returns(void)
{
	if (!returning.correlation)
		return;
	report_correlation(returning.correlation, returning.graph ? RUNTIME_GRAPH : RUNTIME_LAUNCH,
			 returning.name);
	returning.correlation = 0;
}

/* How many listen to both probes. */
EXPORT unsigned simcupti_listeners(void)
{
	return parcagpu_cuda_correlation_semaphore + parcagpu_kernel_executed_semaphore;
}

/* As another listener does, which is there before and after. */
EXPORT void simcupti_listen(int more)
{
	parcagpu_cuda_correlation_semaphore += (unsigned short)more;
	parcagpu_kernel_executed_semaphore += (unsigned short)more;
}

static void report(bool all)
{
	struct kernel *k;

	while ((k = device_next(all)))
		report_kernel(k);
}

/* CUPTI passes buffers in batches, on its own thread. */
static void *reporter(void *unused)
{
	struct timespec pause = {0, 20000000};

	(void)unused;
	for (;;) {
		nanosleep(&pause, NULL);
		if (!held)
			report(false);
	}
	return NULL;
}

/* Returns when all launches have been reported, and are in the journal. */
EXPORT void simcupti_flush(void)
{
	report(true);
	device_settle();
}

EXPORT int InitializeInjection(void)
{
	const char *n = getenv("SIMCUPTI_EVERY"), *runtime = getenv("SIMCUPTI_RUNTIME");
	const char *hold = getenv("SIMCUPTI_HOLD");
	pthread_t thread;

	if (n && atoi(n) > 0)
		every = (uint64_t)atoi(n);
	by_runtime = runtime && atoi(runtime);
	held = hold && atoi(hold);
	if (!device_begin(returns) || pthread_create(&thread, NULL, reporter, NULL))
		return 0;
	pthread_detach(thread);
	return 1;
}
