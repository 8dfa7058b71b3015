/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnvidia-ml.so.1 of one simulated GPU, for machines without one: the functions that
 * ig-gpu calls, all of which succeed. The processes on it are the lines "PID BYTES" of
 * the file that NVML_PROCESSES names. Compiled against go-nvml's nvml.h, so that the
 * compiler checks the declarations.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct timespec begun;
static int xid_told;

/* A counter: it grows by this much a second. */
static unsigned long long growing(unsigned long long each_second)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)((double)each_second *
		((double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) / 1e9));
}

nvmlReturn_t nvmlInit_v2(void)
{
	if (!begun.tv_sec)
		clock_gettime(CLOCK_MONOTONIC, &begun);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t result) { return result ? "an error" : "no error"; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n)
{
	*n = 1;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	if (index)
		return NVML_ERROR_INVALID_ARGUMENT;
	device->handle = (struct nvmlDevice_st *)&begun;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	(void)device;
	snprintf(uuid, length, "GPU-00000000-0000-0000-0000-000000000001");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	(void)device;
	snprintf(name, length, "made up");
	return NVML_SUCCESS;
}

/* processes returns the total used bytes; infos may be NULL. */
static unsigned long long processes(nvmlProcessInfo_t *infos, unsigned int room, unsigned int *n)
{
	const char *path = getenv("NVML_PROCESSES");
	FILE *f = path ? fopen(path, "r") : NULL;
	unsigned long long used = 0, bytes;
	unsigned int pid;

	*n = 0;
	while (f && fscanf(f, "%u %llu", &pid, &bytes) == 2) {
		if (infos && *n < room)
			infos[*n] = (nvmlProcessInfo_t){ .pid = pid, .usedGpuMemory = bytes,
				.gpuInstanceId = ~0u, .computeInstanceId = ~0u };
		used += bytes;
		++*n;
	}
	if (f)
		fclose(f);
	return used;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *n, nvmlProcessInfo_t *infos)
{
	unsigned int room = *n;

	(void)device;
	processes(infos, room, n);
	return *n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *n, nvmlProcessInfo_v1_t *infos)
{
	(void)device, (void)n, (void)infos;
	return NVML_ERROR_NOT_SUPPORTED; /* only its presence is tested */
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *n, nvmlProcessInfo_t *infos)
{
	(void)device, (void)infos;
	*n = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	unsigned int n;

	(void)device;
	memory->total = 16ull << 30;
	memory->used = processes(NULL, 0, &n) + (100ull << 20) + growing(1 << 20);
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	(void)device;
	*rates = (nvmlUtilization_t){ .gpu = 87, .memory = 45 };
	return NVML_SUCCESS;
}

static nvmlReturn_t busy(unsigned int *percent, unsigned int *period)
{
	*percent = 5;
	*period = 1000000; /* us */
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period)
{
	(void)device;
	return busy(percent, period);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period)
{
	(void)device;
	return busy(percent, period);
}

/* One number, for any other argument. */
#define GIVES(name, type, value, ...)                                                   \
	nvmlReturn_t name(nvmlDevice_t device, ##__VA_ARGS__, type *to)                 \
	{                                                                               \
		(void)device;                                                           \
		*to = (value);                                                          \
		return NVML_SUCCESS;                                                    \
	}

GIVES(nvmlDeviceGetTemperature, unsigned int, 61, nvmlTemperatureSensors_t sensor)
GIVES(nvmlDeviceGetTemperatureThreshold, unsigned int, 89, nvmlTemperatureThresholds_t threshold)
GIVES(nvmlDeviceGetPowerUsage, unsigned int, 312500)
GIVES(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 400000)
GIVES(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, growing(312500))
GIVES(nvmlDeviceGetClockInfo, unsigned int, 1410, nvmlClockType_t type)
GIVES(nvmlDeviceGetMaxClockInfo, unsigned int, 1980, nvmlClockType_t type)
GIVES(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, nvmlClocksThrottleReasonSwPowerCap)
GIVES(nvmlDeviceGetTotalEccErrors, unsigned long long, 3, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter)
GIVES(nvmlDeviceGetPcieReplayCounter, unsigned int, 4)
GIVES(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 5)
GIVES(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
GIVES(nvmlDeviceGetNvLinkState, nvmlEnableState_t, link < 18 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED, unsigned int link)
GIVES(nvmlDeviceGetNvLinkErrorCounter, unsigned long long, 0, unsigned int link, nvmlNvLinkErrorCounter_t counter)

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int n, nvmlFieldValue_t *values)
{
	(void)device;
	for (int i = 0; i < n; i++) {
		values[i].nvmlReturn = NVML_SUCCESS;
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
		values[i].value.ullVal = values[i].fieldId == NVML_FI_DEV_MEMORY_TEMP ? 70 : growing(1 << 20);
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	set->handle = (struct nvmlEventSet_st *)&xid_told;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	(void)set;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	(void)device, (void)types, (void)set;
	return NVML_SUCCESS;
}

/* One Xid, then silence. */
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event, unsigned int ms)
{
	(void)set;
	if (xid_told) {
		usleep(ms * 1000);
		return NVML_ERROR_TIMEOUT;
	}
	xid_told = 1;
	memset(event, 0, sizeof(*event));
	event->device.handle = (struct nvmlDevice_st *)&begun;
	event->eventType = nvmlEventTypeXidCriticalError;
	event->eventData = 79;
	return NVML_SUCCESS;
}
