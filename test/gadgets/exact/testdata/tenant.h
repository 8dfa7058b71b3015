/* SPDX-License-Identifier: Apache-2.0 */

/*
 * tenant: a program that takes entries of tables, step by step.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

static void *driver;

static void *symbol(const char *name)
{
	void *f = dlsym(driver, name);

	if (!f) {
		fprintf(stderr, "tenant: %s\n", dlerror());
		exit(1);
	}
	return f;
}

/* Arguments have the width of the parameters. */
#define CU(name, ...) \
	do { \
		CUresult result = ((CUresult(*)())symbol(#name))(__VA_ARGS__); \
		if (result) { \
			fprintf(stderr, "tenant: " #name ": error %d\n", result); \
			exit(1); \
		} \
	} while (0)

/* Prints "ready" and reads a line. Ends with its input. */
static void wait_for_line(void)
{
	puts("ready");
	fflush(stdout);
	for (int c = 0; c != '\n';)
		if ((c = getchar()) == EOF)
			exit(0);
}
