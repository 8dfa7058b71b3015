// SPDX-License-Identifier: Apache-2.0
/* A program that claims to be CPython 3.14t, by what that publishes at the begin of _PyRuntime. */
#include <stdint.h>
#include <unistd.h>

struct {
	uint64_t cookie, version, free_threaded, words[512];
} _PyRuntime = { 0x7970677562656478 /* xdebugpy */, 0x030e00f0, 1 };

int main(void)
{
	return pause();
}
