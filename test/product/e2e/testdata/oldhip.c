/* SPDX-License-Identifier: Apache-2.0 */

/* A libamdhip64 of another version: of the functions that are probed it has two. */
#include <stdlib.h>

int hipMalloc(void **out, size_t size)
{
	static char *next = (char *)0x700000000000;

	*out = next;
	next += size;
	return 0;
}

int hipFree(void *p)
{
	return 0;
}
