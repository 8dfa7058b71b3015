/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of every kind, and the workload's own counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

enum { MAX_HELD = 4096, FORMAT_U8 = 1, FORMAT_FLOAT = 0x20 };

typedef uint64_t address;

struct array { size_t width, height; int format; unsigned channels; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };
/* CUmemAllocationProp: pinned memory of a device. */
struct properties { int type, handles, location, device; void *security; uint8_t flags[8]; };

/* How one thing is given back. */
struct held {
	char kind[16];
	address pointer;
	void *extra;
	size_t bytes;
};

static struct held held[MAX_HELD];
static int count;

static int make_vmm(struct held *h, size_t bytes)
{
	struct properties p = {1, 0, 1, current_device, NULL, {0}};
	address handle = 0;
	int r = CALL("cuMemCreate", (address *, size_t, struct properties *, uint64_t), &handle, bytes, &p, 0);

	h->extra = (void *)handle;
	if (!r)
		r = CALL("cuMemAddressReserve", (address *, size_t, size_t, address, uint64_t), &h->pointer, bytes, 0, 0,
			 0);
	if (!r)
		r = CALL("cuMemMap", (address, size_t, size_t, address, uint64_t), h->pointer, bytes, 0, handle, 0);
	return r;
}

/* Makes an allocation of that kind. Its bytes are those requested from the driver, with the
 * driver's pitch. */
static int make(struct held *h, const char *kind, size_t bytes)
{
	address *p = &h->pointer;
	size_t pitch = 0;

	snprintf(h->kind, sizeof(h->kind), "%s", kind);
	h->bytes = bytes;
	if (!strcmp(kind, "device"))
		return CALL("cuMemAlloc_v2", (address *, size_t), p, bytes);
	if (!strcmp(kind, "pitch")) { /* rows of 1000 bytes */
		int r = CALL("cuMemAllocPitch_v2", (address *, size_t *, size_t, size_t, unsigned), p, &pitch, 1000,
			     bytes / 1000, 4);
		h->bytes = pitch * (bytes / 1000);
		return r;
	}
	if (!strcmp(kind, "managed"))
		return CALL("cuMemAllocManaged", (address *, size_t, unsigned), p, bytes, 1);
	if (!strcmp(kind, "host"))
		return CALL("cuMemHostAlloc", (address *, size_t, unsigned), p, bytes, 0);
	if (!strcmp(kind, "registered")) {
		h->extra = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
		*p = (address)h->extra;
		return CALL("cuMemHostRegister_v2", (void *, size_t, unsigned), h->extra, bytes, 0);
	}
	if (!strcmp(kind, "array")) { /* 1024 floats a row */
		struct array d = {1024, bytes / 4096, FORMAT_FLOAT, 1};
		h->bytes = d.width * d.height * 4;
		return CALL("cuArrayCreate_v2", (address *, struct array *), p, &d);
	}
	if (!strcmp(kind, "array3d")) {
		struct array3d d = {256, 256, bytes / 65536, FORMAT_U8, 1, 0};
		h->bytes = d.width * d.height * d.depth;
		return CALL("cuArray3DCreate_v2", (address *, struct array3d *), p, &d);
	}
	if (!strcmp(kind, "mipmap")) { /* two levels: a whole and a quarter */
		struct array3d d = {1024, bytes / 1024, 0, FORMAT_U8, 1, 0};
		h->bytes = d.width * d.height + d.width / 2 * (d.height / 2);
		return CALL("cuMipmappedArrayCreate", (address *, struct array3d *, unsigned), p, &d, 2);
	}
	if (!strcmp(kind, "vmm"))
		return make_vmm(h, bytes);
	if (!strcmp(kind, "pool"))
		return CALL("cuMemAllocAsync", (address *, size_t, void *), p, bytes, NULL);
	if (!strcmp(kind, "frompool")) {
		void *pool = NULL;
		int r = CALL("cuDeviceGetDefaultMemPool", (void **, int), &pool, current_device);
		return r ? r : CALL("cuMemAllocFromPoolAsync", (address *, size_t, void *, void *), p, bytes, pool, NULL);
	}
	return MISSING;
}

static int give_back(struct held *h)
{
	int r;

	if (!strcmp(h->kind, "host"))
		return CALL("cuMemFreeHost", (address), h->pointer);
	if (!strcmp(h->kind, "registered")) {
		r = CALL("cuMemHostUnregister", (address), h->pointer);
		free(h->extra);
		return r;
	}
	if (!strcmp(h->kind, "array") || !strcmp(h->kind, "array3d"))
		return CALL("cuArrayDestroy", (address), h->pointer);
	if (!strcmp(h->kind, "mipmap"))
		return CALL("cuMipmappedArrayDestroy", (address), h->pointer);
	if (!strcmp(h->kind, "pool") || !strcmp(h->kind, "frompool"))
		return CALL("cuMemFreeAsync", (address, void *), h->pointer, NULL);
	if (strcmp(h->kind, "vmm"))
		return CALL("cuMemFree_v2", (address), h->pointer);
	r = CALL("cuMemUnmap", (address, size_t), h->pointer, h->bytes);
	if (!r)
		r = CALL("cuMemRelease", (address), (address)h->extra);
	CALL("cuMemAddressFree", (address, size_t), h->pointer, h->bytes);
	return r;
}

static void answer_made(int r, uint64_t objects, uint64_t bytes)
{
	answer_begin();
	answer_result(r);
	answer_number("objects", objects);
	answer_number("bytes", bytes);
	answer_end();
}

/* alloc KIND BYTES [N] */
static void alloc(const char *kind, size_t bytes, uint64_t n)
{
	uint64_t objects = 0, sum = 0;
	int r = 0;

	while (objects < n && count < MAX_HELD && !(r = make(&held[count], kind, bytes))) {
		sum += held[count++].bytes;
		objects++;
	}
	answer_made(r, objects, sum);
}

/* free KIND [N]: the newest N of a kind, or all. */
static void release(const char *kind, uint64_t n)
{
	uint64_t objects = 0, sum = 0;
	int r = 0;

	for (int i = count - 1; i >= 0 && objects < n && !r; i--) {
		if (strcmp(kind, "all") && strcmp(kind, held[i].kind))
			continue;
		if ((r = give_back(&held[i])))
			break;
		objects++;
		sum += held[i].bytes;
		memmove(&held[i], &held[i + 1], (size_t)(--count - i) * sizeof(*held));
	}
	answer_made(r, objects, sum);
}

static void info(void)
{
	size_t available = 0, total = 0;
	int r = CALL("cuMemGetInfo_v2", (size_t *, size_t *), &available, &total);

	answer_begin();
	answer_result(r);
	answer_number("free", available);
	answer_number("total", total);
	answer_end();
}

/*
 * refuse: an allocation of more than the device has, which is harmless. fill: allocates
 * quarters of the free memory until the driver refuses one, and frees all.
 */
static void exhaust(bool fill)
{
	size_t available = 0, total = 0, requested;
	address pointers[256];
	int n = 0, r = CALL("cuMemGetInfo_v2", (size_t *, size_t *), &available, &total);

	requested = fill ? (available / 4) & ~((size_t)(2 << 20) - 1) : total + (1u << 30);
	while (!r && n < 256 && !(r = CALL("cuMemAlloc_v2", (address *, size_t), &pointers[n], requested)))
		n++;
	answer_begin();
	answer_result(r);
	answer_number("requested", requested);
	answer_number("held", requested * (size_t)n);
	answer_end();
	while (n > 0)
		CALL("cuMemFree_v2", (address), pointers[--n]);
}

bool memory_command(int argc, char **argv)
{
	if (IS("alloc"))
		alloc(TEXT(1, ""), ARG(2, 0), ARG(3, 1));
	else if (IS("free"))
		release(TEXT(1, ""), ARG(2, UINT64_MAX));
	else if (IS("info"))
		info();
	else if (IS("refuse") || IS("fill"))
		exhaust(IS("fill"));
	else
		return false;
	return true;
}
