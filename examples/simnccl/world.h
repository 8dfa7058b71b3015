/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMNCCL_WORLD_H
#define SIMNCCL_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * world: state shared by the ranks of one communicator: the number of collectives that each
 * has reached, and of sends and receives per pair. It is a file in shared memory that is
 * unlinked once all ranks have joined, so that nothing is left behind no matter how they
 * end.
 *
 * A collective is complete when all ranks have arrived at it with the same arguments;
 * a rank with other arguments makes all of them wait forever, as in NCCL.
 */
#define WORLD_RANKS 128
#define WORLD_RING 256	/* collectives that a rank may be ahead of another */
#define WORLD_SPLITS 16 /* likewise, of splits */

struct world;

/* Maps the file of `id`, which the first rank makes. NULL: errno. */
struct world *world_join(uint64_t id, int size, int rank);
/* All ranks have joined. With `wait` it returns then. */
bool world_complete(struct world *w, bool wait);
void world_leave(struct world *w);

/* The rank arrives at its next collective, which is `signature`; returns its number. */
uint64_t world_arrive(struct world *w, int rank, uint64_t signature);
/* All ranks have arrived at that collective; *last_ns: when the last one did. */
bool world_all_arrived(struct world *w, int rank, uint64_t number, uint64_t *last_ns);

/* A send of `from` to `to`, or the receive of it; its number. */
uint64_t world_send(struct world *w, int from, int to);
uint64_t world_receive(struct world *w, int from, int to);
/* The newest of each is not issued after all. */
void world_depart(struct world *w, int rank);
void world_unsend(struct world *w, int from, int to);
void world_unreceive(struct world *w, int from, int to);
/* Both ends have reached that number. */
bool world_met(struct world *w, int from, int to, uint64_t number);

/* Split `number`, from 1: a rank's arguments. */
void world_split(struct world *w, int rank, uint32_t number, int color, int key);
/* Waits for all ranks; the rank and size of this one in its part. */
void world_parts(struct world *w, int rank, uint32_t number, int *new_rank, int *new_size);

uint64_t world_now_ns(void); /* CLOCK_MONOTONIC */
void world_pause(unsigned *turn); /* between two polls */

#endif
