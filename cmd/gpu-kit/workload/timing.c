/* SPDX-License-Identifier: Apache-2.0 */

/* Durations of calls, and the throughput of a GPU that is the bottleneck. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

enum { REPEATS = 21 };

/* time alloc|launch N: the median of some repeats, in ns for one pair or launch. */
static void time_calls(bool launches, uint64_t n)
{
	double values[REPEATS];
	int r = 0;
	void *function = launches ? kernel("kit_empty", &r) : NULL;
	int (*take)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))find(&cuda, "cuMemAlloc_v2");
	int (*give)(uint64_t) = (int (*)(uint64_t))find(&cuda, "cuMemFree_v2");
	uint64_t pointer = 0;

	if (!take || !give)
		r = MISSING;
	for (int i = 0; i < REPEATS && !r; i++) {
		uint64_t begin = now_ns();
		for (uint64_t j = 0; j < n && !r; j++) {
			if (launches)
				r = launch("plain", function, 0, NULL);
			else if (!(r = take(&pointer, 4096)))
				r = give(pointer);
		}
		values[i] = (double)(now_ns() - begin) / (double)n;
		if (!r)
			r = CALL("cuCtxSynchronize", (void), );
	}
	answer_begin();
	answer_result(r);
	answer_real("ns", r ? 0 : median(values, REPEATS));
	answer_end();
}

static int spin(void *function, uint64_t work, uint64_t n, double *took_ns)
{
	uint64_t begin = now_ns();
	int r = 0;

	for (uint64_t i = 0; i < n && !r; i++)
		r = launch("plain", function, work, NULL);
	if (!r)
		r = CALL("cuCtxSynchronize", (void), );
	*took_ns = (double)(now_ns() - begin);
	return r;
}

/*
 * calibrate: the amount of work that makes a kernel of about a millisecond. On a driver
 * where work takes no time it ends at 2^32, with 0: the GPU is not the bottleneck there.
 */
static void calibrate(void)
{
	uint64_t work = 1024;
	double ns = 0;
	int r = 0;
	void *function = kernel("kit_spin", &r);

	if (!r)
		r = spin(function, 1, 1, &ns); /* it is loaded now */
	while (!r && work < 1ull << 32 && !(r = spin(function, work, 4, &ns)) && ns / 4 < 1e6)
		work *= 2;
	answer_begin();
	answer_result(r);
	answer_number("work", work < 1ull << 32 ? work : 0);
	answer_end();
}

/* spin WORK N: the kernels a second of N launches that are waited for. */
static void throughput(uint64_t work, uint64_t n)
{
	double ns = 0;
	int r = 0;
	void *function = kernel("kit_spin", &r);

	if (!r)
		r = spin(function, work, n, &ns);
	answer_begin();
	answer_result(r);
	answer_real("per_second", r || ns == 0 ? 0 : (double)n * 1e9 / ns);
	answer_end();
}

bool timing_command(int argc, char **argv)
{
	if (IS("time"))
		time_calls(!strcmp(TEXT(1, ""), "launch"), ARG(2, 100));
	else if (IS("calibrate"))
		calibrate();
	else if (IS("spin"))
		throughput(ARG(1, 0), ARG(2, 1));
	else
		return false;
	return true;
}
