/* SPDX-License-Identifier: Apache-2.0 */

/* Has a library loaded until its input ends. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	if (argc != 2 || !dlopen(argv[1], RTLD_NOW))
		return 1;
	puts("loaded");
	fflush(stdout);
	getchar();
	return 0;
}
