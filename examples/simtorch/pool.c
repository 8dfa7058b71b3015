/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "pool.h"

/* Sizes of PyTorch's CUDACachingAllocator (c10/cuda/CUDACachingAllocator.cpp, 2.6). */
#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define SMALLEST 512ull		/* every block is a multiple of it */
#define SMALL_LIMIT (1 * MIB)	/* up to here from a small segment */
#define SMALL_SEGMENT (2 * MIB)
#define MEDIUM_LIMIT (10 * MIB) /* from here on a segment of the block's own size */
#define MEDIUM_SEGMENT (20 * MIB)
#define LARGE_STEP (2 * MIB)

static uint64_t round_up(uint64_t size, uint64_t step)
{
	return (size + step - 1) / step * step;
}

uint64_t pool_rounded(uint64_t size)
{
	return size < SMALLEST ? SMALLEST : round_up(size, SMALLEST);
}

static uint64_t segment_size(uint64_t size)
{
	if (size <= SMALL_LIMIT)
		return SMALL_SEGMENT;
	if (size < MEDIUM_LIMIT)
		return MEDIUM_SEGMENT;
	return round_up(size, LARGE_STEP);
}

static struct block *add(struct pool *pool, uint64_t pointer, uint64_t size, unsigned stream,
			 bool small)
{
	struct block *b = calloc(1, sizeof(*b));

	if (!b)
		abort();
	b->pointer = pointer;
	b->size = size;
	b->stream = stream;
	b->small = small;
	b->next = pool->blocks;
	pool->blocks = b;
	return b;
}

static void drop(struct pool *pool, struct block *gone)
{
	struct block **at = &pool->blocks;

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	free(gone);
}

static bool unused(const struct block *b) { return !b->serial && !b->used_by; }

/* The smallest free block that is large enough, the lowest of equal ones. */
static struct block *best(struct pool *pool, uint64_t size, unsigned stream)
{
	bool small = size <= SMALL_LIMIT;
	struct block *found = NULL;

	for (struct block *b = pool->blocks; b; b = b->next)
		if (unused(b) && b->stream == stream && b->small == small && b->size >= size &&
		    (!found || b->size < found->size ||
		     (b->size == found->size && b->pointer < found->pointer)))
			found = b;
	return found;
}

static struct block *segment(struct pool *pool, uint64_t size, unsigned stream, pool_take *take)
{
	uint64_t bytes = segment_size(size), pointer;

	if (take(&pointer, bytes))
		return NULL;
	pool->reserved += bytes;
	if (pool->peak_reserved < pool->reserved)
		pool->peak_reserved = pool->reserved;
	return add(pool, pointer, bytes, stream, size <= SMALL_LIMIT);
}

struct block *pool_out(struct pool *pool, uint64_t size, unsigned stream, pool_take *take,
		       pool_give *give)
{
	struct block *b, *rest;

	size = pool_rounded(size);
	b = best(pool, size, stream);
	if (!b)
		b = segment(pool, size, stream, take);
	if (!b && pool_trim(pool, give))
		b = segment(pool, size, stream, take);
	if (!b)
		return NULL;
	/* What is left over is a block of its own: at least 512 bytes of a small
	 * segment, more than 1 MiB of a large one. */
	if (b->size - size >= (b->small ? SMALLEST : SMALL_LIMIT + 1)) {
		rest = add(pool, b->pointer + size, b->size - size, b->stream, b->small);
		rest->before = b;
		rest->after = b->after;
		if (b->after)
			b->after->before = rest;
		b->after = rest;
		b->size = size;
	}
	pool->allocated += b->size;
	if (pool->peak_allocated < pool->allocated)
		pool->peak_allocated = pool->allocated;
	return b;
}

struct block *pool_find(struct pool *pool, uint64_t pointer)
{
	struct block *b = pool->blocks;

	while (b && (b->pointer != pointer || !b->serial))
		b = b->next;
	return b;
}

/* Joins `b` with the free block behind it. */
static void join(struct pool *pool, struct block *b)
{
	struct block *after = b->after;

	if (!after || !unused(after) || !unused(b))
		return;
	b->size += after->size;
	b->after = after->after;
	if (b->after)
		b->after->before = b;
	drop(pool, after);
}

static void join_both(struct pool *pool, struct block *b)
{
	struct block *before = b->before;

	join(pool, b);
	if (before)
		join(pool, before);
}

void pool_back(struct pool *pool, struct block *b)
{
	pool->allocated -= b->size;
	b->serial = 0;
	join_both(pool, b);
}

void pool_synchronize(struct pool *pool, unsigned stream)
{
	struct block *b = pool->blocks;

	while (b) {
		uint64_t used_by = b->used_by & ~(1ull << stream);

		if (b->used_by == used_by) {
			b = b->next;
			continue;
		}
		b->used_by = used_by;
		join_both(pool, b);
		b = pool->blocks; /* joined ones are gone from the list */
	}
}

uint64_t pool_trim(struct pool *pool, pool_give *give)
{
	uint64_t bytes = 0;
	struct block *next;

	for (struct block *b = pool->blocks; b; b = next) {
		next = b->next;
		if (!unused(b) || b->before || b->after || give(b->pointer))
			continue;
		bytes += b->size;
		drop(pool, b);
	}
	pool->reserved -= bytes;
	return bytes;
}
