/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMTORCH_EXPANDABLE_H
#define SIMTORCH_EXPANDABLE_H

/*
 * expandable: a segment that grows, as PyTorch's with expandable_segments:True: a range of
 * addresses for more than the device has, into which physical memory of a fixed size is
 * mapped, piece by piece, and from which whole pieces are unmapped again.
 */
#include <stdint.h>

struct expandable {
	int device;
	uint64_t base, bytes; /* of the addresses; a multiple of piece */
	uint64_t piece;	      /* bytes of physical memory behind one handle */
	uint64_t handles[];   /* by piece; 0: not mapped */
};

/* Addresses for all of the device's memory and an eighth more; NULL: it refused. */
struct expandable *expandable_new(int device, uint64_t piece);
/* Maps whole pieces, none of which is mapped. 0, or a CUresult: then none of them is mapped. */
int expandable_map(struct expandable *e, uint64_t address, uint64_t bytes);
/* Unmaps whole pieces, all of which are mapped. */
void expandable_unmap(struct expandable *e, uint64_t address, uint64_t bytes);
/* Frees the addresses; no piece is mapped any more. */
void expandable_free(struct expandable *e);

#endif
