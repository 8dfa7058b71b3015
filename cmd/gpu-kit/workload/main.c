/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "workload.h"

struct library cuda;
int current_device;
static bool is_first_field;

void *find(struct library *library, const char *name)
{
	return library->handle ? dlsym(library->handle, name) : NULL;
}

bool open_first(struct library *library, const char *const *names)
{
	for (; !library->handle && *names; names++)
		if (**names && (library->handle = dlopen(*names, RTLD_NOW | RTLD_GLOBAL)))
			library->path = *names;
	return library->handle;
}

void answer_begin(void)
{
	is_first_field = true;
	putchar('{');
}

static void key_of(const char *key)
{
	printf("%s\"%s\":", is_first_field ? "" : ",", key);
	is_first_field = false;
}

void answer_number(const char *key, uint64_t value)
{
	key_of(key);
	printf("%llu", (unsigned long long)value);
}

void answer_real(const char *key, double value)
{
	key_of(key);
	printf("%.3f", value);
}

void answer_text(const char *key, const char *text)
{
	key_of(key);
	putchar('"');
	for (; text && *text; text++)
		if (*text == '"' || *text == '\\')
			printf("\\%c", *text);
		else if ((unsigned char)*text >= ' ')
			putchar(*text);
	putchar('"');
}

void answer_result(int r)
{
	key_of("result");
	printf("%d", r);
}

void answer_end(void)
{
	puts("}");
	fflush(stdout);
}

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), by_value);
	return n ? (values[(n - 1) / 2] + values[n / 2]) / 2 : 0;
}

/* init: the driver, and how many devices it has. */
static void init(void)
{
	int n = 0, version = 0, r;

	open_first(&cuda, (const char *const[]){getenv("GPU_KIT_LIBCUDA") ?: "", "libcuda.so.1", NULL});
	answer_begin();
	if (!cuda.handle)
		answer_text("error", dlerror());
	r = CALL("cuInit", (unsigned), 0);
	answer_result(r);
	CALL("cuDriverGetVersion", (int *), &version);
	if (!r)
		CALL("cuDeviceGetCount", (int *), &n);
	answer_number("version", (uint64_t)version);
	answer_number("devices", (uint64_t)n);
	answer_number("is_simulated", find(&cuda, "simcuda_tag") != NULL);
	answer_end();
}

/* device N: name, bytes and attributes; its primary context becomes current. */
static void device(int n)
{
	char name[256] = "";
	size_t bytes = 0;
	int dev = 0, processors = 0, r;
	void *context = NULL;

	answer_begin();
	r = CALL("cuDeviceGet", (int *, int), &dev, n);
	CALL("cuDeviceGetName", (char *, int, int), name, sizeof(name), dev);
	CALL("cuDeviceTotalMem_v2", (size_t *, int), &bytes, dev);
	CALL("cuDeviceGetAttribute", (int *, int, int), &processors, 16, dev);
	if (!r)
		r = CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, dev);
	if (!r)
		r = CALL("cuCtxSetCurrent", (void *), context);
	if (!r)
		current_device = dev;
	answer_result(r);
	answer_text("name", name);
	answer_number("bytes", bytes);
	answer_number("processors", (uint64_t)processors);
	answer_end();
}

/* The name that cuGetProcAddress takes for an export: without its version, and flags. */
static void ask_for(const char *exported, char *base, size_t size, uint64_t *flags)
{
	snprintf(base, size, "%s", exported);
	size_t n = strlen(base);
	*flags = 0;
	if (n > 5 && (!strcmp(base + n - 5, "_ptsz") || !strcmp(base + n - 5, "_ptds"))) {
		base[n -= 5] = 0;
		*flags = 2; /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
	}
	if (n > 3 && base[n - 3] == '_' && base[n - 2] == 'v')
		base[n - 3] = 0;
}

/*
 * addresses NAME…: how often cuGetProcAddress_v2 gives the exported function of a name, that
 * of another name of the list (a newer form), or one that is not in the list.
 */
static void addresses(int argc, char **argv)
{
	uint64_t same = 0, newer = 0, absent = 0, unknown = 0, flags;
	char base[128], unknowns[4096] = "";

	for (int i = 1; i < argc; i++) {
		void *got = NULL, *exported = find(&cuda, argv[i]);
		bool listed = false;

		ask_for(argv[i], base, sizeof(base), &flags);
		int r = CALL("cuGetProcAddress_v2", (const char *, void **, int, uint64_t, int *), base, &got, 12040, flags,
			     NULL);
		for (int j = 1; j < argc && !listed; j++)
			listed = got && find(&cuda, argv[j]) == got;
		if (!exported || r || !got)
			absent++;
		else if (got == exported)
			same++;
		else if (listed)
			newer++;
		else {
			unknown++;
			snprintf(unknowns + strlen(unknowns), sizeof(unknowns) - strlen(unknowns), "%s ", argv[i]);
		}
	}
	answer_begin();
	answer_result(0);
	answer_number("same", same);
	answer_number("newer", newer);
	answer_number("absent", absent);
	answer_number("unknown", unknown);
	answer_text("unknowns", unknowns);
	answer_end();
}

int main(void)
{
	char line[32768];
	char *argv[1024];

	while (fgets(line, sizeof(line), stdin)) {
		int argc = 0;
		for (char *word = strtok(line, " \n"); word && argc < 1024; word = strtok(NULL, " \n"))
			argv[argc++] = word;
		if (!argc)
			continue;
		if (IS("init"))
			init();
		else if (IS("device"))
			device((int)ARG(1, 0));
		else if (IS("addresses"))
			addresses(argc, argv);
		else if (IS("quit"))
			return 0;
		else if (!memory_command(argc, argv) && !launch_command(argc, argv) && !timing_command(argc, argv) &&
			 !runtime_command(argc, argv) && !nccl_command(argc, argv) && !nvml_command(argc, argv)) {
			answer_begin();
			answer_text("error", "no such command");
			answer_result(MISSING);
			answer_end();
		}
	}
	return 0;
}
