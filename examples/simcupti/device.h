/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUPTI_DEVICE_H
#define SIMCUPTI_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "../simcuda/observer.h"

/*
 * device: the times at which the GPU would have run the launches, and their journal. Streams are
 * in order; a kernel takes 1 µs and 100 ns for each block of its grid.
 */
struct kernel {
	struct kernel *next;
	uint64_t start, end, node; /* ns of the device's clock */
	uint32_t correlation, device, stream, graph;
	char name[];
};

/* Reads SIMCUPTI_JOURNAL and SIMCUPTI_CLOCK_NS, and has `returns` called at each launch
 * (observer.h). False: there is no simulated driver, or the journal cannot be written. */
bool device_begin(void (*returns)(const struct simcuda_launch *));

/* Queues the kernels of a launch: one, or the graph's, node_0, node_1, … */
void device_launch(const struct simcuda_launch *l);

/*
 * The next kernel that ended a second ago, because buffers are passed on late; `all`: the next,
 * when it has ended. NULL: there is none. device_reported() ends it: it is in the journal then,
 * and freed.
 */
struct kernel *device_next(bool all);
void device_reported(struct kernel *k, bool heard);

/* Waits for device_reported() of kernels that others have taken, and writes the journal. */
void device_settle(void);

/* Writes the journal's line of a reported launch. */
void device_correlated(uint32_t correlation, const char *name);

#endif
