/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUPTI_PROBE_H
#define SIMCUPTI_PROBE_H

/*
 * probe: statically defined probes, as <sys/sdt.h> makes them: a no-op instruction, and a
 * note with its address, the places of its arguments, and its semaphore. Written from the
 * notes' public format, so that nothing has to be installed.
 *
 *   PROBE_SEMAPHORE(provider, name);
 *   if (PROBE_ENABLED(provider, name))
 *           PROBE3(provider, name, 4, id, -4, n, 8, pointer);
 *
 * Each argument follows its size in bytes, negative where it is signed.
 */
#define PROBE_SEMAPHORE(provider, name)                                             \
	__attribute__((section(".probes"), visibility("hidden"), used)) volatile unsigned short \
		provider##_##name##_semaphore

#define PROBE_ENABLED(provider, name) (provider##_##name##_semaphore != 0)

#define PROBE_(provider, name, arguments, ...)                       \
	__asm__ volatile("990: nop\n"                                \
			 ".pushsection .note.stapsdt,\"\",\"note\"\n" \
			 ".balign 4\n"                               \
			 ".4byte 992f - 991f, 994f - 993f, 3\n"      \
			 "991: .asciz \"stapsdt\"\n"                 \
			 "992: .balign 4\n"                          \
			 "993: .8byte 990b\n"                        \
			 ".8byte _.stapsdt.base\n"                   \
			 ".8byte " #provider "_" #name "_semaphore\n" \
			 ".asciz \"" #provider "\"\n"                \
			 ".asciz \"" #name "\"\n"                    \
			 ".asciz \"" arguments "\"\n"                \
			 "994: .balign 4\n"                          \
			 ".popsection\n"                             \
			 ".ifndef _.stapsdt.base\n"                  \
			 ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n" \
			 ".weak _.stapsdt.base\n"                    \
			 ".hidden _.stapsdt.base\n"                  \
			 "_.stapsdt.base: .space 1\n"                \
			 ".size _.stapsdt.base, 1\n"                 \
			 ".popsection\n"                             \
			 ".endif\n" ::__VA_ARGS__)

#define PROBE3(provider, name, s0, a0, s1, a1, s2, a2)                            \
	PROBE_(provider, name, #s0 "@%0 " #s1 "@%1 " #s2 "@%2", "nor"(a0), "nor"(a1), "nor"(a2))

#define PROBE1(provider, name, s0, a0) PROBE_(provider, name, #s0 "@%0", "nor"(a0))

#define PROBE4(provider, name, s0, a0, s1, a1, s2, a2, s3, a3)                    \
	PROBE_(provider, name, #s0 "@%0 " #s1 "@%1 " #s2 "@%2 " #s3 "@%3", "nor"(a0), "nor"(a1), \
	       "nor"(a2), "nor"(a3))

#define PROBE8(provider, name, s0, a0, s1, a1, s2, a2, s3, a3, s4, a4, s5, a5, s6, a6, s7, a7) \
	PROBE_(provider, name,                                                        \
	       #s0 "@%0 " #s1 "@%1 " #s2 "@%2 " #s3 "@%3 " #s4 "@%4 " #s5 "@%5 " #s6 "@%6 " #s7 "@%7", \
	       "nor"(a0), "nor"(a1), "nor"(a2), "nor"(a3), "nor"(a4), "nor"(a5), "nor"(a6), "nor"(a7))

#endif
