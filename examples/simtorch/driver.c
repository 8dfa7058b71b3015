/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

#ifdef VENDOR_HIP
#define LIBRARY "libamdhip64.so.6"
#define NAME(cuda, hip) hip
#else
#define LIBRARY "libcuda.so.1"
#define NAME(cuda, hip) cuda
#endif

struct driver driver;

static void *need(void *library, const char *name)
{
	void *f = dlsym(library, name);

	if (!f) {
		fprintf(stderr, "simtorch: " LIBRARY " has no %s\n", name);
		abort();
	}
	return f;
}

void driver_start(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);

	if (!library) {
		fprintf(stderr, "simtorch: %s\n", dlerror());
		abort();
	}
	driver.init = need(library, NAME("cuInit", "hipInit"));
	driver.retain =
		need(library, NAME("cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain"));
	driver.current = need(library, NAME("cuCtxGetCurrent", "hipCtxGetCurrent"));
	driver.set = need(library, NAME("cuCtxSetCurrent", "hipCtxSetCurrent"));
	driver.total = need(library, NAME("cuDeviceTotalMem_v2", "hipDeviceTotalMem"));
	driver.alloc = need(library, NAME("cuMemAlloc_v2", "hipMalloc"));
	driver.free = need(library, NAME("cuMemFree_v2", "hipFree"));
	driver.alloc_async = need(library, NAME("cuMemAllocAsync", "hipMallocAsync"));
	driver.free_async = need(library, NAME("cuMemFreeAsync", "hipFreeAsync"));
	driver.reserve = need(library, NAME("cuMemAddressReserve", "hipMemAddressReserve"));
	driver.unreserve = need(library, NAME("cuMemAddressFree", "hipMemAddressFree"));
	driver.create = need(library, NAME("cuMemCreate", "hipMemCreate"));
	driver.release = need(library, NAME("cuMemRelease", "hipMemRelease"));
	driver.map = need(library, NAME("cuMemMap", "hipMemMap"));
	driver.unmap = need(library, NAME("cuMemUnmap", "hipMemUnmap"));
	driver.access = need(library, NAME("cuMemSetAccess", "hipMemSetAccess"));
#ifndef VENDOR_HIP /* operators.c */
	driver.device = need(library, "cuCtxGetDevice");
	driver.state = need(library, "cuDevicePrimaryCtxGetState");
	driver.attribute = need(library, "cuFuncGetAttribute");
	driver.load = need(library, "cuModuleLoadData");
	driver.function = need(library, "cuModuleGetFunction");
	driver.launch = need(library, "cuLaunchKernel");
	driver.launch_ex = need(library, "cuLaunchKernelEx");
	driver.copy = need(library, "cuMemcpyDtoDAsync_v2");
	driver.fill = need(library, "cuMemsetD8Async");
#endif
	driver.tag = dlsym(library, NAME("simcuda_tag", "simhip_tag"));
	if (driver.init(0)) {
		fprintf(stderr, "simtorch: " LIBRARY " does not start\n");
		abort();
	}
}

bool driver_use(int device)
{
	void *current = NULL;

	if (device < 0 || device >= MAX_DEVICES)
		return false;
	if (!driver.context[device] && driver.retain(&driver.context[device], device))
		return false;
	if (!driver.current(&current) && current == driver.context[device])
		return true;
	return !driver.set(driver.context[device]);
}
