// SPDX-License-Identifier: Apache-2.0
/* The probed function: one that a workload calls by ctypes. */
__attribute__((noinline)) void mark(unsigned long id)
{
	__asm__ volatile("" : : "r"(id) : "memory");
}
