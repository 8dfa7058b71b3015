// SPDX-License-Identifier: Apache-2.0
/*
 * A program that calls mark() without Python, then loads libpython and calls it
 * from Python code: embed LIBPYTHON LIBMARK FIRST_ID
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void mark(unsigned long id);

int main(int argc, char **argv)
{
	char code[1024];
	unsigned long first;
	void *python;

	if (argc < 4)
		return 2;
	first = strtoul(argv[3], 0, 0);
	for (int i = 0; i < 100; i++)
		mark(first);
	python = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (!python) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	snprintf(code, sizeof(code),
		 "import ctypes\n"
		 "def inner():\n"
		 "    ctypes.CDLL('%s').mark(ctypes.c_ulong(%lu))\n"
		 "inner()\n", argv[2], first + 1);
	((void (*)(void))dlsym(python, "Py_Initialize"))();
	usleep(50 * 1000); /* the search is tried again after 16 ms */
	return ((int (*)(const char *))dlsym(python, "PyRun_SimpleString"))(code);
}
