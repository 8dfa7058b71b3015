/* SPDX-License-Identifier: Apache-2.0 */

/* The exported symbols, and the start and end of the library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exports.h"
#include "../simcuda/later.h"
#include "../simcuda/state.h"

void vmm_reset(void);

#define X(symbol, ...) CUresult impl_##symbol();
MEMORY_APIS(X)
DRIVER_CALLS(X)
HIP_OTHER_APIS(X)
#undef X

extern void *simhip_slots[];

/* The real library's is made at its first call, and tools may put their functions into it. */
__attribute__((used)) void *simhip_table(void)
{
	return simhip_slots;
}

#if !defined(__x86_64__)
#error "HIP is for x86-64"
#endif

/*
 * The shape of the real exports, because a tracer chooses its place in it: endbr64, the
 * arguments saved, a call that answers the table, and a jump to the function.
 */
__asm__(".pushsection .data, \"aw\"\n"
	".p2align 3\n"
	".globl simhip_slots\n"
	".hidden simhip_slots\n"
	"simhip_slots:\n"
	".popsection\n");
#define X(symbol, ...) \
	__asm__(".pushsection .text\n" \
		".globl " #symbol "\n" \
		".type " #symbol ", @function\n" \
		".p2align 4\n" #symbol ":\n" \
		".cfi_startproc\n" \
		"endbr64\n" \
		"sub $0x38, %rsp\n" \
		".cfi_adjust_cfa_offset 0x38\n" \
		"mov %rdi, 0x28(%rsp)\n" \
		"mov %rsi, 0x20(%rsp)\n" \
		"mov %rdx, 0x18(%rsp)\n" \
		"mov %rcx, 0x10(%rsp)\n" \
		"mov %r8, 0x8(%rsp)\n" \
		"mov %r9, (%rsp)\n" \
		"call simhip_table\n" \
		"mov (%rsp), %r9\n" \
		"mov 0x8(%rsp), %r8\n" \
		"mov 0x10(%rsp), %rcx\n" \
		"mov 0x18(%rsp), %rdx\n" \
		"mov 0x20(%rsp), %rsi\n" \
		"mov 0x28(%rsp), %rdi\n" \
		"mov simhip_slot_" #symbol " - simhip_slots(%rax), %rax\n" \
		"add $0x38, %rsp\n" \
		".cfi_adjust_cfa_offset -0x38\n" \
		"jmp *%rax\n" \
		".cfi_endproc\n" \
		".size " #symbol ", . - " #symbol "\n" \
		".popsection\n" \
		".pushsection .data, \"aw\"\n" \
		"simhip_slot_" #symbol ": .quad impl_" #symbol "\n" \
		".popsection\n");
MEMORY_APIS(X)
DRIVER_CALLS(X)
HIP_OTHER_APIS(X)
#undef X

/* ------------------------------------------------------------- start and end */

#define EXPORTED __attribute__((visibility("default")))

/* The tag of the calling thread's next calls, written into their records. */
EXPORTED void simhip_tag(uint64_t tag)
{
	thread.tag = tag;
}

/* Work that a library above HIP puts on a stream: see ../simcuda/later.h. */
EXPORTED void simhip_later(uint64_t stream, bool (*is_done)(void *), void *arg)
{
	later_add(stream, is_done, arg);
}

/* The device of the calling thread. */
EXPORTED int simhip_device(void)
{
	CUresult why;
	pthread_mutex_lock(&sim.lock);
	device_begin();
	int device = current(&why)->device;
	pthread_mutex_unlock(&sim.lock);
	return device;
}

/* Brings the journal's file to its final length; records may still follow. */
EXPORTED void simhip_flush(void)
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
	if (!*end)
		return n;
	fprintf(stderr, "simhip: %s=%s is not a number; using %llu\n", name, text,
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

/* The child starts afresh, as that of the simulated CUDA driver. */
static void after_fork_in_child(void)
{
	pthread_mutex_init(&sim.lock, NULL);
	state_reset();
	vmm_reset();
	journal_forked();
	later_reset();
}

__attribute__((constructor)) static void load(void)
{
	uint64_t devices = number("SIMHIP_DEVICES", 2);
	sim.devices = devices > MAX_DEVICES ? MAX_DEVICES : (int)devices;
	sim.capacity = number("SIMHIP_CAPACITY", 16ull << 30);
	sim.fail_every = number("SIMHIP_FAIL_EVERY", 0);
	sim.held = number("SIMHIP_HELD", 1);
	journal_setup(getenv("SIMHIP_JOURNAL"), (uint32_t)sim.devices, sim.capacity);
	sim.every_call = journal_on() || sim.fail_every;
	state_reset();
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

__attribute__((destructor)) static void unload(void)
{
	simhip_flush();
}
