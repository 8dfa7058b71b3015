/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_OBSERVER_H
#define SIMCUDA_OBSERVER_H

#include <stdint.h>

/*
 * observer: reports launches of the simulated driver to a library in the
 * process that observes them, as the real driver does through CUPTI. The first cuInit loads
 * the library that CUDA_INJECTION64_PATH names and calls its InitializeInjection().
 */
struct simcuda_launch {
	const char *kernel;   /* its name; NULL: a graph was launched */
	uint64_t stream;      /* as the caller gave it */
	uint64_t nodes;	      /* of the graph */
	uint64_t graph;	      /* its handle */
	uint32_t correlation; /* 1, 2, … in the process */
	int32_t device;
	uint32_t grid[3], block[3];
};

/*
 * Has `returns` called on the launching thread when a successful launch is about to
 * return, with the driver's lock held: it must not call the driver, and its argument is
 * invalid after it returns. One observer.
 */
void simcuda_observe(void (*returns)(const struct simcuda_launch *));

#endif
