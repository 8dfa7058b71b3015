/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_COUNTS_H
#define SIMCUDA_COUNTS_H

/*
 * counts: how often each exported entry was called. SIMCUDA_COUNTS names a directory; the
 * file there is <pid>.counts, an array of counts_row in the order of the tables, mapped,
 * so that it can be read while the process lives. Without counting there is no cost: the
 * stubs jump straight to their implementation.
 */
#include <stdint.h>

struct counts_row {
	char name[56]; /* NUL-terminated */
	uint64_t calls;
};
_Static_assert(sizeof(struct counts_row) == 64, "the readers rely on it");

void counts_setup(const char *dir);
/* The child of a fork gets its own file. */
void counts_forked(void);

#endif
