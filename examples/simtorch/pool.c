/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "driver.h"
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

/* A block of the same segment as `like`. */
static struct block *add(struct pool *pool, uint64_t pointer, uint64_t size,
			 const struct block *like)
{
	struct block *b = calloc(1, sizeof(*b));

	if (!b)
		abort();
	b->pointer = pointer;
	b->size = size;
	b->stream = like->stream;
	b->private = like->private;
	b->small = like->small;
	b->expandable = like->expandable;
	b->next = pool->blocks;
	pool->blocks = b;
	return b;
}

/* Leaves `size` bytes in `b`; the rest becomes a free block after it. */
static struct block *cut(struct pool *pool, struct block *b, uint64_t size)
{
	struct block *rest = add(pool, b->pointer + size, b->size - size, b);

	rest->unmapped = b->unmapped;
	rest->before = b;
	rest->after = b->after;
	if (b->after)
		b->after->before = rest;
	b->after = rest;
	b->size = size;
	return rest;
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

/* Both are for the same requests. */
static bool alike(const struct block *a, const struct block *b)
{
	return a->stream == b->stream && a->small == b->small && a->private == b->private;
}

/* The smallest free block that is large enough, the lowest of equal ones. */
static struct block *best(struct pool *pool, uint64_t size, const struct block *like)
{
	struct block *found = NULL;

	for (struct block *b = pool->blocks; b; b = b->next)
		if (unused(b) && !b->unmapped && alike(b, like) && b->size >= size &&
		    (!found || b->size < found->size ||
		     (b->size == found->size && b->pointer < found->pointer)))
			found = b;
	return found;
}

static void reserved(struct pool *pool, uint64_t bytes)
{
	pool->reserved += bytes;
	if (pool->peak_reserved < pool->reserved)
		pool->peak_reserved = pool->reserved;
}

/* Joins `b` with the free block after it. */
static void join(struct pool *pool, struct block *b)
{
	struct block *after = b->after;

	if (!after || !unused(after) || !unused(b) || after->unmapped != b->unmapped)
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

/* The free memory before addresses that have none yet. */
static struct block *front(const struct block *b)
{
	return b->before && unused(b->before) && !b->before->unmapped ? b->before : NULL;
}

/* The lowest addresses of an expandable segment with enough room, including free memory
 * before them; those of a new segment if there are none. */
static struct block *addresses(struct pool *pool, uint64_t size, const struct block *like)
{
	struct block *found = NULL, fresh = *like;

	for (struct block *b = pool->blocks; b; b = b->next)
		if (b->unmapped && alike(b, like) &&
		    b->size + (front(b) ? front(b)->size : 0) >= size &&
		    (!found || b->pointer < found->pointer))
			found = b;
	if (found)
		return found;
	fresh.expandable = expandable_new(pool->device, like->small ? SMALL_SEGMENT : MEDIUM_SEGMENT);
	if (!fresh.expandable)
		return NULL;
	found = add(pool, fresh.expandable->base, fresh.expandable->bytes, &fresh);
	found->unmapped = true;
	return found;
}

/* Maps as many pieces as a block of that size needs. */
static struct block *expand(struct pool *pool, uint64_t size, const struct block *like)
{
	struct block *b = addresses(pool, size, like), *before;
	uint64_t bytes;

	if (!b)
		return NULL;
	before = front(b);
	bytes = round_up(size - (before ? before->size : 0), b->expandable->piece);
	if (bytes > b->size || expandable_map(b->expandable, b->pointer, bytes))
		return NULL;
	reserved(pool, bytes);
	if (b->size > bytes)
		cut(pool, b, bytes);
	b->unmapped = false;
	if (!before)
		return b;
	join(pool, before);
	return before;
}

static struct block *segment(struct pool *pool, uint64_t size, const struct block *like)
{
	uint64_t bytes = segment_size(size), pointer;

	if (pool->is_expandable)
		return expand(pool, size, like);
	if (driver.alloc(&pointer, bytes))
		return NULL;
	reserved(pool, bytes);
	return add(pool, pointer, bytes, like);
}

struct block *pool_out(struct pool *pool, uint64_t size, unsigned stream)
{
	struct block *b, like = {.stream = stream};

	size = pool_rounded(size);
	like.small = size <= SMALL_LIMIT;
	if (pool->capturing && stream == pool->captured_stream)
		like.private = pool->capturing;
	b = best(pool, size, &like);
	if (!b)
		b = segment(pool, size, &like);
	if (!b && pool_trim(pool))
		b = segment(pool, size, &like);
	if (!b)
		return NULL;
	/* The remainder becomes a separate block: at least 512 bytes of a small segment
	 * or an expandable one, more than 1 MiB of a large one. */
	if (b->size - size >= (b->small || b->expandable ? SMALLEST : SMALL_LIMIT + 1))
		cut(pool, b, size);
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

/* Unmaps the whole pieces of a free block of an expandable segment, and frees the segment
 * if it is empty. Returns bytes. Other blocks may be removed from the list. */
static uint64_t shrink(struct pool *pool, struct block *b)
{
	struct expandable *e = b->expandable;
	uint64_t from = e->base + round_up(b->pointer - e->base, e->piece);
	uint64_t end = (b->pointer + b->size - e->base) / e->piece * e->piece + e->base;
	uint64_t bytes = end > from ? end - from : 0;

	if (!bytes)
		return 0;
	expandable_unmap(e, from, bytes);
	if (b->pointer < from)
		b = cut(pool, b, from - b->pointer);
	if (b->size > bytes)
		cut(pool, b, bytes);
	b->unmapped = true;
	pool->reserved -= bytes;
	if (b->before && b->before->unmapped)
		b = b->before;
	join(pool, b);
	join(pool, b);
	if (b->size == e->bytes) {
		expandable_free(e);
		drop(pool, b);
	}
	return bytes;
}

uint64_t pool_trim(struct pool *pool)
{
	uint64_t bytes = 0, less;
	struct block *next;

	for (struct block *b = pool->blocks; b; b = next) {
		next = b->next;
		if (!unused(b) || b->unmapped || pool->graphs >> b->private & 1)
			continue;
		if (b->expandable) {
			less = shrink(pool, b);
			bytes += less;
			if (less)
				next = pool->blocks; /* joined ones are gone from the list */
			continue;
		}
		if (b->before || b->after || driver.free(b->pointer))
			continue;
		bytes += b->size;
		pool->reserved -= b->size;
		drop(pool, b);
	}
	return bytes;
}
