/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "driver.h"
#include "expandable.h"

struct expandable *expandable_new(int device, uint64_t piece)
{
	struct expandable *e;
	uint64_t base, pieces;
	size_t total;

	if (driver.total(&total, device))
		return NULL;
	pieces = (total + total / 8 + piece - 1) / piece;
	if (driver.reserve(&base, pieces * piece, 0, 0, 0))
		return NULL;
	e = calloc(1, sizeof(*e) + pieces * sizeof(e->handles[0]));
	if (!e)
		abort();
	e->device = device;
	e->base = base;
	e->bytes = pieces * piece;
	e->piece = piece;
	return e;
}

/* Physical memory for all pieces, or for none. */
static int create(struct expandable *e, uint64_t first, uint64_t count)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, e->device},
	};

	for (uint64_t i = first; i < first + count; i++) {
		int err = driver.create(&e->handles[i], e->piece, &prop, 0);

		if (!err)
			continue;
		e->handles[i] = 0;
		while (i-- > first) {
			driver.release(e->handles[i]);
			e->handles[i] = 0;
		}
		return err;
	}
	return 0;
}

int expandable_map(struct expandable *e, uint64_t address, uint64_t bytes)
{
	uint64_t first = (address - e->base) / e->piece, count = bytes / e->piece;
	struct {
		CUmemLocation location;
		uint32_t flags;
	} access = {{CU_MEM_LOCATION_TYPE_DEVICE, e->device}, 3 /* read and write */};
	int err = create(e, first, count);

	if (err)
		return err;
	for (uint64_t i = first; i < first + count; i++)
		if (driver.map(e->base + i * e->piece, e->piece, 0, e->handles[i], 0))
			abort(); /* our own addresses and memory */
	if (driver.access(address, bytes, &access, 1))
		abort();
	return 0;
}

void expandable_unmap(struct expandable *e, uint64_t address, uint64_t bytes)
{
	uint64_t first = (address - e->base) / e->piece, count = bytes / e->piece;

	for (uint64_t i = first; i < first + count; i++) {
		driver.unmap(e->base + i * e->piece, e->piece);
		driver.release(e->handles[i]);
		e->handles[i] = 0;
	}
}

void expandable_free(struct expandable *e)
{
	driver.unreserve(e->base, e->bytes);
	free(e);
}
