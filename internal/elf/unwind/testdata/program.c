// SPDX-License-Identifier: Apache-2.0

// Functions whose frames differ: of constant and of unknown size, aligned, with and without calls.
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf back;
static volatile int sink;

static void handler(int number)
{
	sink += number;
	longjmp(back, 1);
}

__attribute__((noinline)) static int of_unknown_size(size_t n)
{
	char *p = alloca(n);

	memset(p, (int)n, n);
	sink += p[n / 2];
	return printf("%d\n", p[0]);
}

__attribute__((noinline)) static int aligned(int n)
{
	_Alignas(64) char buffer[256];

	memset(buffer, n, sizeof(buffer));
	sink += buffer[n & 255];
	return of_unknown_size(n + 1) + buffer[1];
}

__attribute__((noinline)) static int deep(int n)
{
	int local[16];

	for (int i = 0; i < 16; i++)
		local[i] = rand() + n;
	return n ? deep(n - 1) + local[n & 15] : aligned(100);
}

int main(int argc, char **argv)
{
	signal(SIGUSR1, handler);
	if (!setjmp(back))
		raise(SIGUSR1);
	return deep(argc * 10) & 1;
}
