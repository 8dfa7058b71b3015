/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's own counts, from libnvidia-ml. Read-only. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

struct memory { uint64_t total, free, used; };
struct utilization { unsigned gpu, memory; };
struct process { unsigned pid; uint64_t used; unsigned gpu_instance, compute_instance; };

static struct library nvml;

static int open_device(unsigned index, void **device)
{
	int r = MISSING;

	if (open_first(&nvml, (const char *const[]){"libnvidia-ml.so.1", NULL}))
		r = CALL_IN(nvml, "nvmlInit_v2", (void), );
	return r ? r : CALL_IN(nvml, "nvmlDeviceGetHandleByIndex_v2", (unsigned, void **), index, device);
}

/* nvml N: a device's memory, clocks and load, its processes, and the memory of this one. */
static void read_device(unsigned index)
{
	struct memory m = {0};
	struct utilization u = {0};
	struct process all[256];
	unsigned n = 256, watts = 0, celsius = 0, mig = 0, pending = 0;
	void *device = NULL;
	uint64_t used = 0, others = 0;
	int r = open_device(index, &device);

	answer_begin();
	answer_result(r);
	if (!r) {
		CALL_IN(nvml, "nvmlDeviceGetMemoryInfo", (void *, struct memory *), device, &m);
		CALL_IN(nvml, "nvmlDeviceGetUtilizationRates", (void *, struct utilization *), device, &u);
		CALL_IN(nvml, "nvmlDeviceGetPowerUsage", (void *, unsigned *), device, &watts);
		CALL_IN(nvml, "nvmlDeviceGetTemperature", (void *, int, unsigned *), device, 0, &celsius);
		int has_mig = CALL_IN(nvml, "nvmlDeviceGetMigMode", (void *, unsigned *, unsigned *), device, &mig, &pending);
		if (CALL_IN(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, struct process *), device,
			    &n, all))
			n = 0;
		for (unsigned i = 0; i < n; i++)
			if (all[i].pid == (unsigned)getpid())
				used += all[i].used;
			else
				others++;
		answer_number("total", m.total);
		answer_number("used", m.used);
		answer_number("milliwatts", watts);
		answer_number("celsius", celsius);
		answer_number("utilization", u.gpu);
		answer_number("mig", !has_mig && mig);
		answer_number("process_used", used);
		answer_number("others", others);
	}
	answer_end();
}

bool nvml_command(int argc, char **argv)
{
	if (!IS("nvml"))
		return false;
	read_device((unsigned)ARG(1, 0));
	return true;
}
