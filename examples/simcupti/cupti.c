/* SPDX-License-Identifier: Apache-2.0 */

/*
 * cupti: libcupti.so.12, as far as the real parcagpu needs it for kernels: it subscribes
 * to launches of the driver and receives buffers of kernel records. See README.md.
 *
 * The layouts are those of NVIDIA's cupti_callbacks.h and cupti_activity.h, 12.4.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_PARAMETER = 1, MAX_LIMIT_REACHED = 12 }; /* CUptiResult */
enum { DOMAIN_DRIVER = 1 };					      /* CUpti_CallbackDomain */
enum { LAUNCH_KERNEL = 307, LAUNCH_GRAPH = 514, DRIVER_CALLBACKS = 1024 };
enum { ENTER, EXIT };			 /* CUpti_ApiCallbackSite */
enum { KIND_CONCURRENT_KERNEL = 10 };	 /* CUpti_ActivityKind */

struct callback_data { /* CUpti_CallbackData */
	uint32_t site;
	const char *function;
	const void *parameters;
	void *result;
	const char *symbol;
	void *context;
	uint32_t context_id;
	uint64_t *correlation_data;
	uint32_t correlation;
};

struct record { /* CUpti_ActivityKernel9 */
	uint32_t kind, flags[3];
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	uint8_t shape[40];
	uint32_t correlation;
	int64_t grid_id;
	const char *name;
	uint8_t memory[32];
	uint64_t graph_node;
	uint32_t shared_executed, graph;
	uint8_t later[48];
};

_Static_assert(offsetof(struct callback_data, correlation) == 64, "as CUpti_CallbackData");
_Static_assert(offsetof(struct record, device) == 40, "as CUpti_ActivityKernel9");
_Static_assert(offsetof(struct record, correlation) == 92, "as CUpti_ActivityKernel9");
_Static_assert(offsetof(struct record, name) == 104, "as CUpti_ActivityKernel9");
_Static_assert(offsetof(struct record, graph) == 156, "as CUpti_ActivityKernel9");
_Static_assert(sizeof(struct record) == 208, "as CUpti_ActivityKernel9");

static void (*callback)(void *user, uint32_t domain, uint32_t id, const void *data);
static void *callback_user;
static bool enabled[DRIVER_CALLBACKS], kernels;
static void (*request)(uint8_t **buffer, size_t *size, size_t *records);
static void (*complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
static pthread_mutex_t handing = PTHREAD_MUTEX_INITIALIZER;

static void returns(const struct simcuda_launch *l)
{
	uint32_t id = l->kernel ? LAUNCH_KERNEL : LAUNCH_GRAPH;
	struct callback_data data = {
		.site = ENTER, .function = l->kernel ? "cuLaunchKernel" : "cuGraphLaunch",
		.symbol = l->kernel, .correlation = l->correlation,
	};

	if (callback && enabled[id]) {
		callback(callback_user, DOMAIN_DRIVER, id, &data);
		data.site = EXIT;
		callback(callback_user, DOMAIN_DRIVER, id, &data);
	}
	if (kernels)
		device_launch(l);
}

/* Fills buffers and passes them on; without one, kernels are lost and not reported. */
static void hand_over(bool all)
{
	struct kernel *reported[4096], *k;
	uint8_t *buffer = NULL;
	size_t size = 0, most = 0, n = 0;

	pthread_mutex_lock(&handing);
	while ((k = device_next(all))) {
		if (!buffer && request)
			request(&buffer, &size, &most);
		if (!buffer) {
			device_reported(k, false);
			continue;
		}
		((struct record *)buffer)[n] = (struct record){
			.kind = KIND_CONCURRENT_KERNEL, .start = k->start, .end = k->end,
			.device = k->device, .stream = k->stream, .correlation = k->correlation,
			.name = k->name, .graph_node = k->node, .graph = k->graph,
		};
		reported[n++] = k;
		if (n < sizeof(reported) / sizeof(*reported) && (n + 1) * sizeof(struct record) <= size)
			continue;
		complete(NULL, 0, buffer, size, n * sizeof(struct record));
		for (buffer = NULL; n; n--)
			device_reported(reported[n - 1], true);
	}
	if (buffer)
		complete(NULL, 0, buffer, size, n * sizeof(struct record));
	for (; n; n--)
		device_reported(reported[n - 1], true);
	pthread_mutex_unlock(&handing);
}

static void *hand_over_now_and_then(void *unused)
{
	struct timespec pause = {0, 20000000};

	(void)unused;
	for (;;) {
		nanosleep(&pause, NULL);
		hand_over(false);
	}
	return NULL;
}

EXPORT int cuptiSubscribe(void **subscriber, void (*call)(void *, uint32_t, uint32_t, const void *), void *user)
{
	pthread_t thread;

	if (callback || !device_begin(returns) || pthread_create(&thread, NULL, hand_over_now_and_then, NULL))
		return INVALID_PARAMETER;
	pthread_detach(thread);
	callback_user = user;
	callback = call;
	*subscriber = &callback;
	return SUCCESS;
}

EXPORT int cuptiUnsubscribe(void *subscriber)
{
	(void)subscriber;
	callback = NULL;
	return SUCCESS;
}

EXPORT int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t id)
{
	(void)subscriber;
	if (domain == DOMAIN_DRIVER && id < DRIVER_CALLBACKS)
		enabled[id] = enable;
	return SUCCESS;
}

EXPORT int cuptiActivityRegisterCallbacks(void (*ask)(uint8_t **, size_t *, size_t *),
					  void (*give)(void *, uint32_t, uint8_t *, size_t, size_t))
{
	request = ask;
	complete = give;
	return SUCCESS;
}

EXPORT int cuptiActivityEnable(uint32_t kind)
{
	kernels |= kind == KIND_CONCURRENT_KERNEL;
	return SUCCESS;
}

EXPORT int cuptiActivityDisable(uint32_t kind)
{
	kernels &= kind != KIND_CONCURRENT_KERNEL;
	return SUCCESS;
}

EXPORT int cuptiActivityFlushAll(uint32_t flags)
{
	(void)flags;
	hand_over(false);
	return SUCCESS;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
	uint8_t *next = *record ? (uint8_t *)*record + sizeof(struct record) : buffer;

	if (next >= buffer + valid)
		return MAX_LIMIT_REACHED;
	*record = next;
	return SUCCESS;
}

/* Returns when all launches have been reported, and are in the journal. */
EXPORT void simcupti_flush(void)
{
	hand_over(true);
	device_settle();
}
