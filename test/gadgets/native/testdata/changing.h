// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <sys/mman.h>

// A thread that changes mappings all the time. What it changes has pages, so that each takes long.
static void *changing(void *)
{
	size_t bytes = 32 << 20;
	char *memory = (char *)mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < bytes; i += 4096)
		memory[i] = 1;
	for (int on = 0;; on = !on)
		mprotect(memory, bytes, on ? PROT_READ | PROT_WRITE : PROT_READ);
	return 0;
}
