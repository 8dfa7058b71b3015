/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMTORCH_POOL_H
#define SIMTORCH_POOL_H

/*
 * pool: one device's memory as PyTorch's native caching allocator keeps it: segments
 * of the driver, cut into blocks. All of it is called under the allocator's lock.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "expandable.h"

#define POOL_STREAMS 64
#define POOL_PRIVATE 64 /* numbers of private pools: from 1 to one less */

struct block {
	uint64_t pointer, size;
	uint64_t serial; /* of the journal's record; 0: free */
	uint64_t used_by; /* bit s: stream s was recorded as a user, and may still use it */
	unsigned stream; /* of the segment: blocks go to requests of this stream only */
	unsigned private; /* of the segment: number of the private pool, 0: of none */
	bool small;	 /* of a segment for blocks up to 1 MiB */
	bool unmapped;	 /* addresses of an expandable segment without memory */
	struct expandable *expandable; /* the segment, where it is one */
	struct block *before, *after; /* in the same segment, by address */
	struct block *next;	      /* of the pool's list, in no order */
};

struct pool {
	struct block *blocks;
	uint64_t allocated, reserved; /* bytes allocated, and reserved from the driver */
	uint64_t peak_allocated, peak_reserved;
	uint64_t graphs; /* bit n: a graph keeps private pool n */
	unsigned capturing, captured_stream; /* private pool of requests of that stream */
	int device;
	bool is_expandable; /* new segments are */
};

/* Bytes of the block that a request gets at least. */
uint64_t pool_rounded(uint64_t size);
/* A block of at least `size` bytes for work of a stream (below POOL_STREAMS), from a free
 * one or a new segment; NULL: the driver has no memory, and cached memory has been
 * released to it. */
struct block *pool_out(struct pool *pool, uint64_t size, unsigned stream);
/* The allocated block at this address; NULL: none. */
struct block *pool_find(struct pool *pool, uint64_t pointer);
/* Frees a block and joins it with free neighbours; one that another stream uses counts as
 * free at once, and is allocated again after pool_synchronize() of that. */
void pool_back(struct pool *pool, struct block *block);
/* All work of the stream is done. */
void pool_synchronize(struct pool *pool, unsigned stream);
/* Returns segments without a block in use, and pieces of expandable ones, to the
 * driver, except those of private pools that a graph keeps. Returns the bytes. */
uint64_t pool_trim(struct pool *pool);

#endif
