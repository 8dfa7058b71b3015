/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

struct driver driver;

static void *need(void *library, const char *name)
{
	void *f = dlsym(library, name);

	if (!f) {
		fprintf(stderr, "simtorch: libcuda.so.1 has no %s\n", name);
		abort();
	}
	return f;
}

void driver_start(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library) {
		fprintf(stderr, "simtorch: %s\n", dlerror());
		abort();
	}
	driver.init = need(library, "cuInit");
	driver.retain = need(library, "cuDevicePrimaryCtxRetain");
	driver.current = need(library, "cuCtxGetCurrent");
	driver.set = need(library, "cuCtxSetCurrent");
	driver.total = need(library, "cuDeviceTotalMem_v2");
	driver.alloc = need(library, "cuMemAlloc_v2");
	driver.free = need(library, "cuMemFree_v2");
	driver.alloc_async = need(library, "cuMemAllocAsync");
	driver.free_async = need(library, "cuMemFreeAsync");
	driver.reserve = need(library, "cuMemAddressReserve");
	driver.unreserve = need(library, "cuMemAddressFree");
	driver.create = need(library, "cuMemCreate");
	driver.release = need(library, "cuMemRelease");
	driver.map = need(library, "cuMemMap");
	driver.unmap = need(library, "cuMemUnmap");
	driver.access = need(library, "cuMemSetAccess");
	driver.device = need(library, "cuCtxGetDevice");
	driver.state = need(library, "cuDevicePrimaryCtxGetState");
	driver.attribute = need(library, "cuFuncGetAttribute");
	driver.load = need(library, "cuModuleLoadData");
	driver.function = need(library, "cuModuleGetFunction");
	driver.launch = need(library, "cuLaunchKernel");
	driver.launch_ex = need(library, "cuLaunchKernelEx");
	driver.copy = need(library, "cuMemcpyDtoDAsync_v2");
	driver.fill = need(library, "cuMemsetD8Async");
	driver.tag = dlsym(library, "simcuda_tag");
	if (driver.init(0)) {
		fprintf(stderr, "simtorch: cuInit failed\n");
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
