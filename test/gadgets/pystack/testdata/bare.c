/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Two functions without unwind information in one KiB of code, as the assembly of libjpeg or libdav1d is. The second
 * one runs in a loop, n times.
 */
__asm__(".text\n"
	".p2align 10\n"
	".globl bare_first\n"
	".type bare_first, @function\n"
	"bare_first:\n"
	"	ret\n"
	"	.skip 700\n"
	".size bare_first, . - bare_first\n"
	".p2align 4\n"
	".globl bare_second\n"
	".type bare_second, @function\n"
	"bare_second:\n"
	"	.rept 40\n"
	"	nop\n"
	"	.endr\n"
#if defined(__x86_64__)
	"	decq %rdi\n"
	"	jnz bare_second\n"
#else
	"	subs x0, x0, #1\n"
	"	b.ne bare_second\n"
#endif
	"	ret\n"
	".size bare_second, . - bare_second\n"
	".section .note.GNU-stack, \"\", %progbits\n");
