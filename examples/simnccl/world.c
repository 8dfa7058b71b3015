/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

struct rank {
	_Atomic uint64_t collectives;
	struct {
		_Atomic uint64_t arrival_ns;
		_Atomic uint64_t signature;
	} ring[WORLD_RING];
	struct {
		_Atomic uint32_t number;
		int color, key;
	} split[WORLD_SPLITS];
};

/* In the file. Pairs follow the ranks: sends of rank r to p at [r * size + p], then
 * receives. */
struct shared {
	_Atomic uint32_t joined;
	uint32_t pad;
	struct rank rank[];
};

struct world {
	struct shared *shared;
	_Atomic uint64_t *sends, *receives;
	size_t bytes;
	int size;
	char path[PATH_MAX];
};

uint64_t world_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void world_pause(unsigned *turn)
{
	nanosleep(&(struct timespec){.tv_nsec = 20000l << (*turn < 5 ? (*turn)++ : 5)}, NULL);
}

struct world *world_join(uint64_t id, int size, int rank)
{
	const char *dir = getenv("SIMNCCL_DIR");
	struct world *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->size = size;
	size_t ranks = sizeof(struct shared) + (size_t)size * sizeof(struct rank);
	w->bytes = ranks + 2 * (size_t)size * (size_t)size * sizeof(uint64_t);
	snprintf(w->path, sizeof(w->path), "%s/simnccl-%016llx", dir && *dir ? dir : "/dev/shm",
		 (unsigned long long)id);
	/* The first rank creates it: all give it the same size, and zeroes. */
	int fd = open(w->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)w->bytes) < 0)
		goto fail;
	w->shared = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (w->shared == MAP_FAILED)
		goto fail;
	close(fd);
	w->sends = (void *)((char *)w->shared + ranks);
	w->receives = w->sends + (size_t)size * (size_t)size;
	(void)rank;
	if (atomic_fetch_add(&w->shared->joined, 1) + 1 == (uint32_t)size)
		unlink(w->path); /* all ranks have it open */
	return w;
fail:
	fprintf(stderr, "simnccl: %s: %m\n", w->path);
	if (fd >= 0)
		close(fd);
	free(w);
	return NULL;
}

bool world_complete(struct world *w, bool wait)
{
	unsigned turn = 0;
	while (atomic_load(&w->shared->joined) < (uint32_t)w->size) {
		if (!wait)
			return false;
		world_pause(&turn);
	}
	return true;
}

void world_leave(struct world *w)
{
	if (!world_complete(w, false))
		unlink(w->path);
	munmap(w->shared, w->bytes);
	free(w);
}

uint64_t world_arrive(struct world *w, int rank, uint64_t signature)
{
	struct rank *r = &w->shared->rank[rank];
	uint64_t n = atomic_load(&r->collectives) + 1;
	atomic_store(&r->ring[n % WORLD_RING].signature, signature);
	atomic_store(&r->ring[n % WORLD_RING].arrival_ns, world_now_ns());
	atomic_store(&r->collectives, n);
	return n;
}

bool world_all_arrived(struct world *w, int rank, uint64_t number, uint64_t *last_ns)
{
	uint64_t mine = atomic_load(&w->shared->rank[rank].ring[number % WORLD_RING].signature);
	*last_ns = 0;
	for (int i = 0; i < w->size; i++) {
		struct rank *r = &w->shared->rank[i];
		uint64_t come = atomic_load(&r->collectives);
		if (come < number)
			return false;
		if (come >= number + WORLD_RING)
			continue; /* long ago */
		if (atomic_load(&r->ring[number % WORLD_RING].signature) != mine)
			return false;
		uint64_t at = atomic_load(&r->ring[number % WORLD_RING].arrival_ns);
		if (at > *last_ns)
			*last_ns = at;
	}
	return true;
}

uint64_t world_send(struct world *w, int from, int to)
{
	return atomic_fetch_add(&w->sends[from * w->size + to], 1) + 1;
}

uint64_t world_receive(struct world *w, int from, int to)
{
	return atomic_fetch_add(&w->receives[from * w->size + to], 1) + 1;
}

void world_depart(struct world *w, int rank)
{
	atomic_fetch_sub(&w->shared->rank[rank].collectives, 1);
}

void world_unsend(struct world *w, int from, int to)
{
	atomic_fetch_sub(&w->sends[from * w->size + to], 1);
}

void world_unreceive(struct world *w, int from, int to)
{
	atomic_fetch_sub(&w->receives[from * w->size + to], 1);
}

bool world_met(struct world *w, int from, int to, uint64_t number)
{
	int pair = from * w->size + to;
	return atomic_load(&w->sends[pair]) >= number && atomic_load(&w->receives[pair]) >= number;
}

void world_split(struct world *w, int rank, uint32_t number, int color, int key)
{
	struct rank *r = &w->shared->rank[rank];
	r->split[number % WORLD_SPLITS].color = color;
	r->split[number % WORLD_SPLITS].key = key;
	atomic_store(&r->split[number % WORLD_SPLITS].number, number);
}

void world_parts(struct world *w, int rank, uint32_t number, int *new_rank, int *new_size)
{
	uint32_t slot = number % WORLD_SPLITS;
	unsigned turn = 0;
	for (int i = 0; i < w->size; i++)
		while (atomic_load(&w->shared->rank[i].split[slot].number) < number)
			world_pause(&turn);
	int color = w->shared->rank[rank].split[slot].color;
	int key = w->shared->rank[rank].split[slot].key;
	*new_rank = *new_size = 0;
	for (int i = 0; i < w->size; i++) {
		if (w->shared->rank[i].split[slot].color != color)
			continue;
		++*new_size;
		int other = w->shared->rank[i].split[slot].key;
		if (other < key || (other == key && i < rank))
			++*new_rank;
	}
}
