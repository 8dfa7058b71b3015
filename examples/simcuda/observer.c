/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer.h"
#include "state.h"

static void (*observer)(const struct simcuda_launch *);
static uint32_t correlation;

__attribute__((visibility("default"))) void
simcuda_observe(void (*returns)(const struct simcuda_launch *))
{
	__atomic_store_n(&observer, returns, __ATOMIC_RELEASE);
}

/* Without the driver's lock, because the library resolves the driver's functions. */
void observer_load(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
	int (*begin)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;

	if (path && *path && (!begin || !begin()))
		fprintf(stderr, "simcuda: %s is not injected: %s\n", path, dlerror());
}

void observer_notify(const struct work *w, int32_t device)
{
	void (*returns)(const struct simcuda_launch *) = __atomic_load_n(&observer, __ATOMIC_ACQUIRE);
	struct simcuda_launch launch = {
		.kernel = w->kernel, .stream = w->stream, .nodes = w->nodes, .graph = w->graph, .device = device,
	};

	if (!returns || w->captured || (!w->kernel && !w->graph))
		return;
	launch.correlation = ++correlation;
	memcpy(launch.grid, w->grid, sizeof(launch.grid));
	memcpy(launch.block, w->block, sizeof(launch.block));
	returns(&launch);
}
