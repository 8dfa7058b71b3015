// SPDX-License-Identifier: Apache-2.0
/*
 * A program that pretends to be CPython 3.11 and lies: it exports _PyRuntime and
 * Py_Version, and its lists have no end or lead nowhere. Reading it must not harm the
 * process or the kernel.
 *
 * usage: hostile KIND FIRST_ID
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void mark(unsigned long id);

static char pool[3 << 20];

struct {
	uint64_t words[512];
} _PyRuntime;
unsigned long Py_Version = 0x030b00f0;

/* The entries of the dynamic section that the dynamic linker does not read again. */
static void set_dynamic(struct link_map *map, Elf64_Sxword tag, void *value)
{
	for (Elf64_Dyn *d = map->l_ld; d->d_tag; d++)
		if (d->d_tag == tag)
			d->d_un.d_ptr = (uint64_t)value;
}

/* A GNU hash table that lets every name through to one chain, which has no end. */
static void *endless_table(void)
{
	static struct {
		uint32_t buckets, first, bloom_words, shift;
		uint64_t bloom;
		uint32_t bucket, chain[4096];
	} __attribute__((packed)) table = { 1, 1, 1, 0, ~0ULL, 1, {} };

	for (int i = 0; i < 4096; i++)
		table.chain[i] = 0x88b5a110; /* of _PyRuntime, not the last */
	return &table;
}

static void pretend(uint64_t version, uint64_t free_threaded)
{
	memcpy(&_PyRuntime, "xdebugpy", 8);
	_PyRuntime.words[1] = version;
	_PyRuntime.words[2] = free_threaded;
}

/* Offsets of 3.11, as in bpf/python/runtime/offsets.h. */
#define PUT(base, offset, value) (*(uint64_t *)((char *)(base) + (offset)) = (uint64_t)(value))

/* Objects of an interpreter, each a page of the pool. */
static char *const interpreter = pool, *const thread = pool + 4096, *const cframe = pool + 8192,
		   *const frame = pool + 12288, *const code = pool + 16384,
		   *const string = pool + 20480, *const table = pool + 24576;

/* What an interpreter with one thread in one function has. */
static void honest(void)
{
	PUT(&_PyRuntime, 40, interpreter);
	PUT(interpreter, 16, thread);
	PUT(thread, 16, interpreter);
	PUT(thread, 56, cframe);
	PUT(thread, 136, 1); /* gilstate_counter: it has run */
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
}

/* Lists without an end. Returns 0 if it is of another kind. */
static int endless_lists(const char *kind)
{
	if (!strcmp(kind, "interpreters")) {
		PUT(interpreter, 0, interpreter); /* the list has no end */
		PUT(thread, 152, 1);
	} else if (!strcmp(kind, "threads")) {
		PUT(thread, 8, thread);
		PUT(thread, 152, 1);
	} else if (!strcmp(kind, "frames")) {
		PUT(frame, 48, frame);
	} else if (!strcmp(kind, "frames in a circle")) {
		memcpy(frame + 256, frame, 128);
		PUT(frame, 48, frame + 256);
		PUT(frame, 256 + 48, frame);
	} else if (!strcmp(kind, "interpreters in a circle")) {
		memcpy(interpreter + 1024, interpreter, 128);
		PUT(interpreter, 0, interpreter + 1024);
		PUT(interpreter, 1024, interpreter);
		PUT(thread, 152, 1);
	} else {
		return 0;
	}
	return 1;
}

/* So many frames, each at another place of a function with the longest table that is read. */
static void long_tables(int frames)
{
	char *at = frame;

	PUT(table, 16, 1 << 20);
	memset(table + 32, 0x7f, 1 << 20);
	for (int n = 1; n < frames; n++) {
		char *outer = pool + (2 << 20) + n * 256;

		memcpy(outer, frame, 256);
		PUT(outer, 48, 0);
		PUT(outer, 56, code + 184 + n * 2);
		PUT(at, 48, outer);
		at = outer;
	}
}

/* Pointers and lengths that lead nowhere. Returns 0 if it is of another kind. */
static int wild_pointers(const char *kind)
{
	if (!strcmp(kind, "wild cframe")) {
		PUT(thread, 56, 0x10);
	} else if (!strcmp(kind, "wild interpreter")) {
		PUT(&_PyRuntime, 40, 0x10);
	} else if (!strcmp(kind, "wild thread")) {
		PUT(interpreter, 16, 0xdeadbeefdeadbeef);
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
	} else if (!strcmp(kind, "long table")) {
		PUT(table, 16, 1 << 30);
	} else if (!strcmp(kind, "long tables")) {
		long_tables(100);
	} else if (!strcmp(kind, "instruction")) {
		PUT(frame, 56, 0x7fffffffffff);
	} else {
		return 0;
	}
	return 1;
}

/* Versions that the unwinder does not know. Returns 0 if it is of another kind. */
static int other_versions(const char *kind)
{
	if (!strcmp(kind, "version")) {
		Py_Version = 0x03630000;
	} else if (!strcmp(kind, "3.16")) {
		Py_Version = 0x031000f0;
	} else if (!strcmp(kind, "4.11")) {
		Py_Version = 0x040b00f0;
	} else if (!strcmp(kind, "cookie")) {
		memset(&_PyRuntime, 0xff, 1024);
		pretend(0x030d00f0, 0);
	} else if (!strcmp(kind, "cookie of 3.16")) {
		pretend(0x031000f0, 0);
	} else if (!strcmp(kind, "cookie of 3.14t")) {
		pretend(0x030e00f0, 1);
	} else if (!strcmp(kind, "cookie of 3.15t")) {
		pretend(0x030f00f0, 1);
	} else {
		return 0;
	}
	return 1;
}

/* Lies to the search for the interpreter. Returns 0 if it is of another kind. */
static int wild_modules(const char *kind)
{
	struct link_map *map = _r_debug.r_map;

	if (!strcmp(kind, "modules in a circle")) {
		map->l_next->l_next = map;
	} else if (!strcmp(kind, "wild module")) {
		map->l_next = (void *)0x10;
	} else if (!strcmp(kind, "dynamic section without end")) {
		memset(pool, 0x11, sizeof(pool));
		map->l_ld = (void *)pool;
	} else if (!strcmp(kind, "hash chain without end")) {
		memset(pool, 0, sizeof(pool)); /* symbols without a name */
		set_dynamic(map, DT_SYMTAB, pool);
		set_dynamic(map, DT_GNU_HASH, endless_table());
	} else if (!strcmp(kind, "hash table of all ones")) {
		memset(pool, 0xff, sizeof(pool));
		set_dynamic(map, DT_GNU_HASH, pool);
	} else {
		return 0;
	}
	return 1;
}

/*
 * No lie: in the place of a function is another one after the first sample, and its name in a page that is
 * not in memory. After the second sample it is.
 */
static void late_name(unsigned long first)
{
	char *const function = pool + (2 << 20), name[4096] = {};
	int file = memfd_create("name", 0);
	volatile char *page;

	memcpy(name, string, 64);
	memcpy(name + 48, "late", 4);
	if (write(file, name, sizeof(name)) != sizeof(name))
		abort();
	page = mmap(0, sizeof(name), PROT_READ, MAP_SHARED, file, 0);
	PUT(frame, 0, function);
	PUT(function, 128, 1); /* func_version */
	mark(first);
	PUT(function, 128, 2);
	PUT(code, 120, page);
	PUT(code, 128, page);
	mark(first + 1);
	(void)*page;
	mark(first + 2);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	unsigned long first = argc > 2 ? strtoul(argv[2], 0, 0) : 1;

	honest();
	if (!strcmp(kind, "late name")) {
		late_name(first);
		_exit(0);
	}
	if (!endless_lists(kind) && !wild_pointers(kind) && !other_versions(kind) &&
	    !wild_modules(kind)) {
		fprintf(stderr, "unknown kind %s\n", kind);
		return 2;
	}
	mark(first);
	mark(first + 1);
	_exit(0); /* not through lists that have no end any more */
}
