/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The exported symbols, cuGetProcAddress that finds them, and the start and end
 * of the library.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counts.h"
#include "exports.h"
#include "later.h"
#include "state.h"

void vmm_reset(void);

#define X(symbol, ...) CUresult impl_##symbol();
MEMORY_APIS(X)
DRIVER_CALLS(X)
OTHER_APIS(X)
#undef X

/*
 * The shape of the real driver's entries, because a tracer chooses its place in
 * it: a variable is compared with a 32-bit constant, and a jump through a table
 * follows, or an error is returned. Here both ways lead to the same place.
 */
__attribute__((used, visibility("hidden"))) unsigned simcuda_state = 0;

#if defined(__x86_64__)
/* A 10-byte cmpl, a 2-byte je over 12 bytes. */
#define X(symbol, ...)                                         \
	__asm__(".pushsection .text\n"                          \
		".globl " #symbol "\n"                          \
		".type " #symbol ", @function\n"                \
		".p2align 4\n" #symbol ":\n"                    \
		".cfi_startproc\n"                              \
		"cmpl $0x321cba00, simcuda_state(%rip)\n"       \
		"je 1f\n"                                       \
		"jmp *simcuda_entry_" #symbol "(%rip)\n"        \
		".fill 6, 1, 0xcc\n"                            \
		"1: jmp *simcuda_entry_" #symbol "(%rip)\n"     \
		".cfi_endproc\n"                                \
		".size " #symbol ", . - " #symbol "\n"          \
		".popsection\n"                                 \
		".pushsection .data, \"aw\"\n"                  \
		".globl simcuda_entry_" #symbol "\n"            \
		".hidden simcuda_entry_" #symbol "\n"           \
		"simcuda_entry_" #symbol ": .quad impl_" #symbol "\n" \
		".popsection\n");
MEMORY_APIS(X)
DRIVER_CALLS(X)
OTHER_APIS(X)
#undef X
#elif defined(__aarch64__)
/* As of 535.261: every entry begins with adrp; none changes the link register. */
#define X(symbol, ...)                                          \
	__asm__(".pushsection .text\n"                          \
		".globl " #symbol "\n"                          \
		".type " #symbol ", %function\n"                \
		".p2align 4\n" #symbol ":\n"                    \
		".cfi_startproc\n"                              \
		"adrp x9, simcuda_state\n"                      \
		"mov w10, #0xba00\n"                            \
		"movk w10, #0x321c, lsl #16\n"                  \
		"ldr w9, [x9, :lo12:simcuda_state]\n"           \
		"cmp w9, w10\n"                                 \
		"b.eq 1f\n"                                     \
		"1: adrp x9, simcuda_entry_" #symbol "\n"       \
		"ldr x9, [x9, :lo12:simcuda_entry_" #symbol "]\n" \
		"mov x16, x9\n"                                 \
		"br x16\n"                                      \
		".cfi_endproc\n"                                \
		".size " #symbol ", . - " #symbol "\n"          \
		".popsection\n"                                 \
		".pushsection .data, \"aw\"\n"                  \
		".globl simcuda_entry_" #symbol "\n"            \
		".hidden simcuda_entry_" #symbol "\n"           \
		".p2align 3\n"                                  \
		"simcuda_entry_" #symbol ": .quad impl_" #symbol "\n" \
		".popsection\n");
MEMORY_APIS(X)
DRIVER_CALLS(X)
OTHER_APIS(X)
#undef X
#else
#error "an exported entry needs a jump in this architecture's assembly"
#endif

/* ------------------------------------------------------------ cuGetProcAddress */

#define X(symbol, ...) CUresult symbol();
MEMORY_APIS(X)
DRIVER_CALLS(X)
OTHER_APIS(X)
#undef X

static const struct {
	const char *name;
	void *address;
} exports[] = {
#define X(symbol, ...) {#symbol, (void *)symbol},
	MEMORY_APIS(X) DRIVER_CALLS(X) OTHER_APIS(X)
#undef X
};

/* The CUDA version that brought a form; 3020, the second ABI, for most _v2. */
static const struct {
	const char *name;
	int version;
} since[] = {
	{"cuCtxPopCurrent_v2", 4000},	    {"cuCtxPushCurrent_v2", 4000},
	{"cuCtxDestroy_v2", 4000},	    {"cuMemHostRegister_v2", 6050},
	{"cuDevicePrimaryCtxRelease_v2", 11000}, {"cuDevicePrimaryCtxReset_v2", 11000},
	{"cuDevicePrimaryCtxSetFlags_v2", 11000}, {"cuDeviceGetUuid_v2", 11040},
	{"cuCtxCreate_v3", 11040},	    {"cuGetProcAddress_v2", 12000},
	{"cuCtxCreate_v4", 12050},	    {"cuMemGetDefaultMemPool", 13000},
	{"cuMemGetMemPool", 13000},	    {"cuCtxSynchronize_v2", 13000},
};

static int version_of(const char *name)
{
	for (size_t i = 0; i < sizeof(since) / sizeof(*since); i++)
		if (!strcmp(name, since[i].name))
			return since[i].version;
	return strstr(name, "_v2") ? 3020 : 0;
}

static void *lookup(const char *symbol, const char *form, int version)
{
	char name[128];
	snprintf(name, sizeof(name), "%s%s", symbol, form);
	if (version_of(name) > version)
		return NULL;
	for (size_t i = 0; i < sizeof(exports) / sizeof(*exports); i++)
		if (!strcmp(name, exports[i].name))
			return exports[i].address;
	return NULL;
}

enum { PER_THREAD_DEFAULT_STREAM = 2, SYMBOL_FOUND = 0, SYMBOL_NOT_FOUND = 1 };

CUresult impl_cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
				  int *status)
{
	static const char *const forms[] = {"_v4", "_v3", "_v2", ""};
	if (!symbol || !out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	if (flags & PER_THREAD_DEFAULT_STREAM)
		*out = lookup(symbol, "_ptsz", version);
	for (size_t i = 0; !*out && i < sizeof(forms) / sizeof(*forms); i++)
		*out = lookup(symbol, forms[i], version);
	if (status)
		*status = *out ? SYMBOL_FOUND : SYMBOL_NOT_FOUND;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult impl_cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags)
{
	return impl_cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}

/* ------------------------------------------------------------- start and end */

#define EXPORTED __attribute__((visibility("default")))

/* The tag of the calling thread's next calls, written into their records. */
EXPORTED void simcuda_tag(uint64_t tag)
{
	thread.tag = tag;
}

/* Work that a library above the driver puts on a stream: see later.h. */
EXPORTED void simcuda_later(uint64_t stream, bool (*is_done)(void *), void *arg)
{
	later_add(stream, is_done, arg);
}

/* The device of the calling thread's context; -1: none. */
EXPORTED int simcuda_device(void)
{
	CUresult why;
	pthread_mutex_lock(&sim.lock);
	struct context *ctx = current(&why);
	pthread_mutex_unlock(&sim.lock);
	return ctx ? ctx->device : -1;
}

/* Brings the journal's file to its final length; records may still follow. */
EXPORTED void simcuda_flush(void)
{
	pthread_mutex_lock(&sim.lock);
	journal_flush();
	pthread_mutex_unlock(&sim.lock);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	char *end;
	if (!text || !*text)
		return otherwise;
	uint64_t n = strtoull(text, &end, 0);
	static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
	for (unsigned i = 0; i < 5; i++)
		if (!strcmp(end, units[i]))
			return n << 10 * i;
	fprintf(stderr, "simcuda: %s=%s is not a number of bytes; using %llu\n", name, text,
		(unsigned long long)otherwise);
	return otherwise;
}

static void before_fork(void)
{
	pthread_mutex_lock(&sim.lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&sim.lock);
}

/* A real driver refuses to work in the child of a process that used it. Here
 * the child starts afresh: with no context, no memory and cuInit to call. */
static void after_fork_in_child(void)
{
	pthread_mutex_init(&sim.lock, NULL);
	state_reset();
	vmm_reset();
	journal_forked();
	counts_forked();
	later_reset();
}

__attribute__((constructor)) static void load(void)
{
	uint64_t devices = number("SIMCUDA_DEVICES", 2);
	sim.devices = devices > MAX_DEVICES ? MAX_DEVICES : (int)devices;
	sim.capacity = number("SIMCUDA_CAPACITY", 16ull << 30);
	sim.init_ms = (unsigned)number("SIMCUDA_INIT_MS", 50);
	sim.context_ms = (unsigned)number("SIMCUDA_CONTEXT_MS", 5);
	sim.fail_every = number("SIMCUDA_FAIL_EVERY", 0);
	sim.nest = number("SIMCUDA_NEST", 0) != 0;
	counts_setup(getenv("SIMCUDA_COUNTS"));
	journal_setup(getenv("SIMCUDA_JOURNAL"), (uint32_t)sim.devices, sim.capacity);
	sim.every_call = journal_on() || sim.fail_every;
	state_reset();
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

__attribute__((destructor)) static void unload(void)
{
	simcuda_flush();
}
