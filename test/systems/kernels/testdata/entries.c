/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that begin as arm64's do. For each line "NAME CALLS" on standard input it
 * makes these calls and prints {"ns": the time that one took}.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FUNCTIONS(X)                                                                 \
	X(by_adrp, "adrp x9, main\n ret")                                             \
	X(by_stp, "stp x29, x30, [sp, #-16]!\n ldp x29, x30, [sp], #16\n ret")        \
	X(by_mov, "mov x9, x0\n ret")                                                 \
	X(by_nop, "nop\n ret")                                                        \
	X(by_bti, "hint #34\n ret")                                                   \
	X(by_paciasp, "hint #25\n stp x29, x30, [sp, #-16]!\n ldp x29, x30, [sp], #16\n" \
		      " hint #29\n ret") /* autiasp */

#define X(name, code)                                                               \
	void name(void);                                                             \
	__asm__(".globl " #name "\n.type " #name ", %function\n" #name ":\n" code     \
		"\n.size " #name ", . - " #name "\n");
FUNCTIONS(X)
#undef X

int main(void)
{
	char name[32];
	long calls;

	while (scanf("%31s %ld", name, &calls) == 2) {
		void (*function)(void) = NULL;
		struct timespec begin, end;

#define X(f, code)                    \
	if (!strcmp(name, #f))        \
		function = f;
		FUNCTIONS(X)
#undef X
		if (!function)
			return 1;
		clock_gettime(CLOCK_MONOTONIC, &begin);
		for (long i = 0; i < calls; i++)
			function();
		clock_gettime(CLOCK_MONOTONIC, &end);
		printf("{\"ns\": %ld}\n", ((end.tv_sec - begin.tv_sec) * 1000000000L +
					   end.tv_nsec - begin.tv_nsec) / calls);
		fflush(stdout);
	}
	return 0;
}
