// SPDX-License-Identifier: Apache-2.0
/*
 * A program that pretends to be CPython 3.11 and lies: it exports _PyRuntime and
 * Py_Version, and its lists have no end or lead nowhere. It is not hurt by being
 * looked at, and neither may the kernel be.
 *
 * usage: hostile KIND
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void mark(unsigned long id);

static char pool[1 << 20];

struct {
	uint64_t words[512];
} _PyRuntime;
unsigned long Py_Version = 0x030b00f0;

/* Offsets of 3.11, as in bpf/python_offsets.h. */
#define PUT(base, offset, value) (*(uint64_t *)((char *)(base) + (offset)) = (uint64_t)(value))

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	char *interpreter = pool, *thread = pool + 4096, *cframe = pool + 8192, *frame = pool + 12288,
	     *code = pool + 16384, *string = pool + 20480, *table = pool + 24576;

	PUT(&_PyRuntime, 40, interpreter);
	PUT(interpreter, 16, thread);
	PUT(thread, 16, interpreter);
	PUT(thread, 56, cframe);
	PUT(thread, 152, pthread_self());
	PUT(cframe, 8, frame);
	PUT(frame, 32, code);
	PUT(frame, 56, code + 184);
	PUT(code, 112, string);
	PUT(code, 120, string);
	PUT(code, 128, string);
	PUT(code, 136, table);
	PUT(string, 16, 4);
	PUT(string, 32, 1 << 2 | 32 | 64);
	strcpy(string + 48, "evil");
	PUT(table, 16, 2);

	if (!strcmp(kind, "interpreters")) {
		PUT(interpreter, 0, interpreter); /* the list has no end */
		PUT(thread, 152, 1);
	} else if (!strcmp(kind, "threads")) {
		PUT(thread, 8, thread);
		PUT(thread, 152, 1);
	} else if (!strcmp(kind, "frames")) {
		PUT(frame, 48, frame);
	} else if (!strcmp(kind, "wild")) {
		PUT(frame, 48, 0xdeadbeefdeadbeef);
	} else if (!strcmp(kind, "kernel")) {
		PUT(frame, 48, 0xffffffff81000000); /* no frame of ours, and not readable */
	} else if (!strcmp(kind, "code")) {
		PUT(frame, 32, 0x1000);
	} else if (!strcmp(kind, "string")) {
		PUT(string, 16, 1ULL << 62);
	} else if (!strcmp(kind, "length")) {
		PUT(string, 16, 1 << 24); /* the tail is far behind the pool */
	} else if (!strcmp(kind, "table")) {
		PUT(table, 16, 65536);
		memset(table + 32, 0x3f, 65536); /* a number that never ends */
		table[32] = (char)(0x80 | 13 << 3);
		memset(table + 33, 0x7f, 65535);
	} else if (!strcmp(kind, "instruction")) {
		PUT(frame, 56, 0x7fffffffffff);
	} else if (!strcmp(kind, "version")) {
		Py_Version = 0x03630000;
	} else if (!strcmp(kind, "cookie")) {
		memcpy(&_PyRuntime, "xdebugpy", 8);
		_PyRuntime.words[1] = 0x030d00f0;
		memset(&_PyRuntime.words[2], 0xff, 1024);
		_PyRuntime.words[2] = 0;
	} else {
		fprintf(stderr, "unknown kind %s\n", kind);
		return 2;
	}
	mark(1);
	mark(2);
	return 0;
}
