/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vgpu: a library that limits a process's GPU memory, as those of HAMi and others do. Preloaded,
 * it answers dlsym() with its own functions, and refuses by itself what is above VGPU_LIMIT (in
 * MiB). With VGPU_MANAGED it hands allocations on as managed memory.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY 2

typedef void *(*dlsym_fn)(void *, const char *);

static int (*driver_alloc)(uint64_t *, size_t);
static int (*driver_alloc_managed)(uint64_t *, size_t, unsigned int);
static size_t used;

int cuMemAlloc_v2(uint64_t *pointer, size_t size)
{
	const char *limit = getenv("VGPU_LIMIT");
	int result;

	if (limit && used + size > strtoull(limit, NULL, 10) << 20)
		return OUT_OF_MEMORY;
	if (getenv("VGPU_MANAGED"))
		return driver_alloc_managed(pointer, size, 1); /* a jump, not a call */
	result = driver_alloc(pointer, size);
	if (!result)
		used += size;
	return result;
}

void *dlsym(void *handle, const char *name)
{
	static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5" };
	static dlsym_fn libc;

	for (size_t i = 0; !libc && i < sizeof(versions) / sizeof(*versions); i++)
		libc = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	if (strcmp(name, "cuMemAlloc_v2"))
		return libc(handle, name);
	driver_alloc = libc(handle, name);
	driver_alloc_managed = libc(handle, "cuMemAllocManaged");
	return driver_alloc ? cuMemAlloc_v2 : NULL;
}
