/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Calls of the CUDA runtime that is installed, one kind a command, so that the kit can
 * count which calls of the driver each of them makes. Kernels are registered as a
 * compiler's code does it, with PTX only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

struct dim3 { unsigned x, y, z; };

static struct library runtime;

/*
 * The wrapping that nvcc puts around device code: a wrapper, a header, and one entry, here of PTX.
 * The layout is not documented; it was derived from files made by nvcc.
 */
static const char text[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry kit_runtime() { ret; }\n";
static struct {
	uint32_t magic;
	uint16_t version, header;
	uint64_t size;
	struct {
		uint16_t kind, version;
		uint32_t header;
		uint64_t size;
		uint32_t compressed, options;
		uint16_t minor, major;
		uint32_t arch, name, name_size;
		uint64_t flags, zero, plain;
	} entry;
	char text[(sizeof(text) + 7) & ~7ul];
} image = {0xba55ed50, 1, 16, 0, {1, 0x101, 64, sizeof(image.text), 0, 0, 0, 6, 50, 0, 0, 0x10, 0, 0}, ""};
static struct {
	uint32_t magic, version;
	const void *data;
	void *file;
} wrapper = {0x466243b1, 1, &image, NULL};

static void stub(void) {}
static bool is_registered;

/* Registers the kernel with the runtime, at its first use. */
static int registered(void)
{
	void **(*fatbin)(void *) = (void **(*)(void *))find(&runtime, "__cudaRegisterFatBinary");
	void (*end)(void **) = (void (*)(void **))find(&runtime, "__cudaRegisterFatBinaryEnd");
	void (*function)(void **, const void *, char *, const char *, int, void *, void *, void *, void *, int *) =
		(void (*)(void **, const void *, char *, const char *, int, void *, void *, void *, void *, int *))find(
			&runtime, "__cudaRegisterFunction");

	if (is_registered)
		return SUCCESS;
	if (!fatbin || !function)
		return MISSING;
	memcpy(image.text, text, sizeof(text));
	image.size = sizeof(image) - 16;
	void **handle = fatbin(&wrapper);
	function(handle, (void *)stub, "kit_runtime", "kit_runtime", -1, NULL, NULL, NULL, NULL, NULL);
	if (end)
		end(handle);
	is_registered = true;
	return SUCCESS;
}

#define RUNTIME(name, types, ...) CALL_IN(runtime, name, types, __VA_ARGS__)

static void *pointer, *stream, *event;

/* Makes one call of that name. */
static int call(const char *name)
{
	int n = 0, r;
	void *none[] = {NULL};

#define IF(text, ...) if (!strcmp(name, text)) return RUNTIME(text, __VA_ARGS__)
	IF("cudaGetDevice", (int *), &n);
	IF("cudaSetDevice", (int), 0);
	IF("cudaMalloc", (void **, size_t), &pointer, 1 << 20);
	IF("cudaFree", (void *), pointer);
	IF("cudaMallocManaged", (void **, size_t, unsigned), &pointer, 1 << 20, 1);
	IF("cudaHostAlloc", (void **, size_t, unsigned), &pointer, 1 << 20, 0);
	IF("cudaFreeHost", (void *), pointer);
	IF("cudaMallocAsync", (void **, size_t, void *), &pointer, 1 << 20, NULL);
	IF("cudaFreeAsync", (void *, void *), pointer, NULL);
	IF("cudaStreamCreate", (void **), &stream);
	IF("cudaStreamSynchronize", (void *), stream);
	IF("cudaStreamDestroy", (void *), stream);
	IF("cudaEventCreate", (void **), &event);
	IF("cudaEventRecord", (void *, void *), event, stream);
	IF("cudaEventSynchronize", (void *), event);
	IF("cudaEventDestroy", (void *), event);
	IF("cudaMemsetAsync", (void *, int, size_t, void *), pointer, 0, 4096, NULL);
	IF("cudaDeviceSynchronize", (void), );
	if (!strcmp(name, "cudaLaunchKernel")) {
		struct dim3 one = {1, 1, 1};
		r = registered();
		return r ? r : RUNTIME("cudaLaunchKernel", (const void *, struct dim3, struct dim3, void **, size_t, void *),
				       (void *)stub, one, one, none, 0, NULL);
	}
	return MISSING;
#undef IF
}

bool runtime_command(int argc, char **argv)
{
	int version = 0, r = MISSING;

	if (!IS("runtime"))
		return false;
	open_first(&runtime, (const char *const[]){getenv("GPU_KIT_CUDART") ?: "", "libcudart.so.13", "libcudart.so.12",
						   "libcudart.so.11.0", NULL});
	answer_begin();
	if (argc > 1)
		for (uint64_t i = 0; i < ARG(2, 1) && (!i || !r); i++)
			r = call(argv[1]);
	else
		r = RUNTIME("cudaRuntimeGetVersion", (int *), &version);
	answer_result(r);
	answer_number("version", (uint64_t)version);
	answer_text("path", runtime.path);
	answer_end();
	return true;
}
