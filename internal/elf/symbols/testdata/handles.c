/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Handles of kernels as clang writes them for HIP: constants with the kernel's name and the
 * address of its host function; and variables that are none.
 */
void stub(void)
{
}

#define HANDLE(storage, name) \
	storage void (*const name)(void) __attribute__((used, aligned(8))) = stub;
HANDLE(, plain)
HANDLE(, _ZN2ns4gemmIfEEvPT_)
HANDLE(__attribute__((weak)), _ZN2ns4gemmIdEEvPT_)
HANDLE(__attribute__((visibility("hidden"))), _Z6hiddenv)
HANDLE(static, _ZN12_GLOBAL__N_15localEi)

void (*writable)(void) = stub;
unsigned small __attribute__((aligned(8))) = 1;
char large[64] __attribute__((aligned(8))) = "large";
unsigned long zero; /* without bytes in the file */
