/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "counts.h"
#include "exports.h"
#include "state.h"

#define ONE(...) +1
enum { COUNTED = MEMORY_APIS(ONE) DRIVER_CALLS(ONE) OTHER_APIS(ONE) };

/* Counters of the thunks: the file, or these if it is not available. */
static struct counts_row nowhere[COUNTED];
__attribute__((used, visibility("hidden"))) struct counts_row *simcuda_counts = nowhere;

/*
 * One thunk for each entry: adds one to its row and jumps where the stub would have jumped.
 * Only scratch registers that no argument is in are used. 56: offset of `calls`.
 */
__asm__(".set simcuda_count_at, 56\n");
#if defined(__x86_64__)
#define X(symbol, ...)                                                  \
	__asm__(".pushsection .text\n"                                  \
		".type simcuda_count_" #symbol ", @function\n"          \
		"simcuda_count_" #symbol ":\n"                          \
		".cfi_startproc\n"                                      \
		"mov simcuda_counts(%rip), %r11\n"                      \
		"lock incq simcuda_count_at(%r11)\n"                     \
		"jmp impl_" #symbol "\n"                                \
		".cfi_endproc\n"                                        \
		".size simcuda_count_" #symbol ", . - simcuda_count_" #symbol "\n" \
		".set simcuda_count_at, simcuda_count_at + 64\n"        \
		".popsection\n");
#elif defined(__aarch64__)
#define X(symbol, ...)                                                  \
	__asm__(".pushsection .text\n"                                  \
		".type simcuda_count_" #symbol ", %function\n"          \
		"simcuda_count_" #symbol ":\n"                          \
		".cfi_startproc\n"                                      \
		"hint #34\n" /* bti c: the stub jumps here */           \
		"adrp x9, simcuda_counts\n"                             \
		"ldr x9, [x9, :lo12:simcuda_counts]\n"                  \
		"ldr x10, =simcuda_count_at\n"                          \
		"add x9, x9, x10\n"                                     \
		"2: ldxr x10, [x9]\n"                                   \
		"add x10, x10, #1\n"                                    \
		"stxr w11, x10, [x9]\n"                                 \
		"cbnz w11, 2b\n"                                        \
		"b impl_" #symbol "\n"                                  \
		".ltorg\n"                                              \
		".cfi_endproc\n"                                        \
		".size simcuda_count_" #symbol ", . - simcuda_count_" #symbol "\n" \
		".set simcuda_count_at, simcuda_count_at + 64\n"        \
		".popsection\n");
#else
#error "a thunk needs a few instructions of this architecture"
#endif
MEMORY_APIS(X)
DRIVER_CALLS(X)
OTHER_APIS(X)
#undef X

static const char *const names[] = {
#define X(symbol, ...) #symbol,
	MEMORY_APIS(X) DRIVER_CALLS(X) OTHER_APIS(X)
#undef X
};

/* The stubs' table (exports.c), and the thunks to put into it. */
#define X(symbol, ...)                                            \
	extern void *simcuda_entry_##symbol;                      \
	extern char simcuda_count_##symbol[];
MEMORY_APIS(X) DRIVER_CALLS(X) OTHER_APIS(X)
#undef X

static const struct {
	void **entry;
	void *thunk;
} counted[] = {
#define X(symbol, ...) {&simcuda_entry_##symbol, simcuda_count_##symbol},
	MEMORY_APIS(X) DRIVER_CALLS(X) OTHER_APIS(X)
#undef X
};

static const char *directory;

static void open_file(void)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%d.counts", directory, getpid());
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	void *map = MAP_FAILED;
	if (fd >= 0 && (errno = posix_fallocate(fd, 0, sizeof(nowhere))) == 0)
		map = mmap(NULL, sizeof(nowhere), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		fprintf(stderr, "simcuda: counts: %s: %s; nothing is counted\n", path, strerror(errno));
	simcuda_counts = map == MAP_FAILED ? nowhere : map;
	for (unsigned i = 0; i < COUNTED; i++)
		snprintf(simcuda_counts[i].name, sizeof(simcuda_counts[i].name), "%s", names[i]);
	if (fd >= 0)
		close(fd);
}

void counts_setup(const char *dir)
{
	if (!dir || !*dir)
		return;
	directory = strdup(dir);
	open_file();
	for (unsigned i = 0; i < COUNTED; i++)
		*counted[i].entry = counted[i].thunk;
}

void counts_forked(void)
{
	if (directory)
		open_file(); /* the parent's stays mapped; the kernel shares it */
}
