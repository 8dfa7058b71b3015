// SPDX-License-Identifier: Apache-2.0

// Calls the driver CALLS times, from a stack that nobody can walk to its root.
//
// cuts LIBCUDA HOW CALLS
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "changing.h"

#define NOINLINE __attribute__((noinline))

static int (*cu_alloc)(uint64_t *, size_t);
static volatile uint64_t sink;

extern "C" NOINLINE void leaf()
{
	uint64_t pointer;

	if (cu_alloc(&pointer, 4096))
		abort();
	sink += pointer;
}

extern "C" void bare(void (*call)());
extern "C" void mistaken(void (*call)());
extern "C" void pointing(void (*call)());
extern "C" void signalled(void (*call)());

// bare has no unwind information. That of mistaken is wrong: where it has the return address there
// is a number that is none. The frame of pointing begins where it says itself, which is where the
// one before began. signalled has forged what the kernel leaves on the stack for a signal: that was
// interrupted by itself, for ever.
#if defined(__x86_64__)
asm(R"(
.text
.p2align 10
.globl bare
bare:
	push %rbp
	xor %ebp, %ebp
	call *%rdi
	pop %rbp
	ret
.p2align 10
.globl mistaken
mistaken:
	.cfi_startproc
	sub $40, %rsp
	.cfi_def_cfa_offset 32
	movq $0x1234567, 24(%rsp)
	call *%rdi
	add $40, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
.globl pointing
pointing:
	.cfi_startproc
	sub $40, %rsp
	.cfi_escape 0x0f, 3, 0x77, 0, 6 # the word at the stack pointer
	mov %rsp, (%rsp)
	call *%rdi
	add $40, %rsp
	.cfi_def_cfa 7, 8
	ret
	.cfi_endproc
.globl signalled
signalled:
	.cfi_startproc
	sub $520, %rsp
	.cfi_def_cfa_offset 32
	lea restore(%rip), %rax
	mov %rax, 24(%rsp)
	mov %rax, 200(%rsp) # uc_mcontext's rip
	lea 32(%rsp), %rax
	mov %rax, 192(%rsp) # and rsp
	call *%rdi
	add $520, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
.p2align 10
	nop
restore:
	mov $15, %rax
	syscall
.p2align 10
)");
#else
asm(R"(
.text
.p2align 10
.globl bare
bare:
	stp x29, x30, [sp, #-16]!
	mov x29, #0
	blr x0
	ldp x29, x30, [sp], #16
	ret
.p2align 10
.globl mistaken
mistaken:
	.cfi_startproc
	stp x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset 29, -48
	.cfi_offset 30, -16
	movz x9, #0x4567
	movk x9, #0x123, lsl #16
	str x9, [sp, #32]
	blr x0
	ldp x29, x30, [sp], #48
	ret
	.cfi_endproc
.p2align 10
)");
#endif

static NOINLINE void deep(int depth)
{
	if (depth)
		deep(depth - 1);
	else
		leaf();
	sink++;
}

// On a stack of its own, whose upper page, where the callers are, is not readable meanwhile.
static char *guarded;
static size_t page;
static ucontext_t outside, inside;

static NOINLINE void low()
{
	volatile char room[8192];

	room[0] = 1;
	if (mprotect(guarded + 15 * page, page, PROT_NONE))
		abort();
	leaf();
	if (mprotect(guarded + 15 * page, page, PROT_READ | PROT_WRITE))
		abort();
	sink += room[0];
}

static void begin()
{
	for (;;) {
		low();
		swapcontext(&inside, &outside);
	}
}

static void unreadable()
{
	if (!guarded) {
		page = sysconf(_SC_PAGESIZE);
		guarded = (char *)mmap(0, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		getcontext(&inside);
		inside.uc_stack.ss_sp = guarded;
		inside.uc_stack.ss_size = 16 * page;
		makecontext(&inside, begin, 0);
	}
	swapcontext(&outside, &inside);
}

int main(int argc, char **argv)
{
	void *cuda = dlopen(argv[1], RTLD_NOW), *context;
	int (*cu_init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
	int (*cu_context)(void **, unsigned, int) = (int (*)(void **, unsigned, int))dlsym(cuda, "cuCtxCreate_v2");
	const char *how = argv[2];
	pthread_t other;

	cu_alloc = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
	if (argc != 4 || cu_init(0) || cu_context(&context, 0, 0))
		return 1;
	puts("ready");
	fflush(stdout);
	getchar();
	if (!strcmp(how, "busy"))
		pthread_create(&other, 0, changing, 0);
	for (int i = 0; i < atoi(argv[3]); i++) {
		if (!strcmp(how, "bare"))
			bare(leaf);
		else if (!strcmp(how, "mistaken"))
			mistaken(leaf);
#if defined(__x86_64__)
		else if (!strcmp(how, "pointing"))
			pointing(leaf);
		else if (!strcmp(how, "signalled"))
			signalled(leaf);
#endif
		else if (!strcmp(how, "deep"))
			deep(100);
		else if (!strcmp(how, "unreadable"))
			unreadable();
		else
			leaf();
		usleep(i < 150 ? 5000 : 100); // rules are loaded meanwhile
	}
	puts("end");
	fflush(stdout);
	getchar();
}
