/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMNCCL_STATE_H
#define SIMNCCL_STATE_H

/*
 * state: communicators, the calls that a thread has in a group, and the journal.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "../../bpf/nccl/apis.h"
#include "../simcuda/journal.h"
#include "nccl.h"
#include "world.h"

#define NCCL_MAGIC 0x0280028002800280ull /* in every communicator, as in NCCL's */

/* A communicator's world, which its unfinished work needs longer than itself. */
struct room {
	struct world *world;
	_Atomic int users;
	_Atomic bool aborted;
	int rank, size;
};

/* The fields in front are NCCL's own, in its order, at other places: a tracer that reads
 * them has to find out where, as it has for each version of the real one. */
struct ncclComm {
	uint64_t startMagic;
	char opaque[5496];
	uint64_t commHash;
	int rank, nRanks, cudaDev;
	/* Our own fields from here on. */
	struct room *room;
	uint32_t splits, operations;
	uint64_t serial; /* in the process, from 1 on */
	ncclResult_t async_error;
	struct memory *memory;
	uint64_t endMagic;
};

/* An operation that was issued. */
struct op {
	struct room *room;
	int kind; /* enum nccl_op */
	int peer;
	uint64_t number, bytes, issued_ns;
	bool done;
};

/* Operations that are issued together, on one stream. */
struct work {
	size_t count;
	struct op ops[];
};

#define GROUP_MAX 4096

/* A communicator that a group is to make. */
struct birth {
	ncclComm_t comm;
	ncclComm_t *out;
	ncclComm_t parent; /* of a split; else NULL */
	uint32_t number;
	int color;
};

struct thread {
	uint64_t tag;
	int depth;
	ncclResult_t error; /* of a call in the group, which is not issued then */
	bool is_job;	    /* of a group: see births() */
	size_t ops, births;
	struct op op[GROUP_MAX];
	uint64_t stream[GROUP_MAX];
	ncclComm_t comm[GROUP_MAX];
	struct birth birth[64];
};
extern __thread struct thread thread;

struct sim {
	uint64_t latency_ns, bytes_per_second; /* 0: none, any */
	_Atomic uint64_t calls[16];	       /* of each op, for faults */
	_Atomic uint64_t communicators;
	_Atomic int rank; /* in the process's first communicator; -1: none yet */
};
extern struct sim sim;

bool valid(ncclComm_t comm);

/* Puts the issued operations on their stream. */
void issue(const struct op *ops, size_t count, uint64_t stream);
/* The thread's group ends. */
ncclResult_t group_end(void);
/* Communicators without a world wait for their ranks; failed: *out becomes NULL. */
ncclResult_t be_born(struct birth *b);
/* Those of a group: with SIMNCCL_MEMORY each on a thread of its own, as NCCL does it. */
ncclResult_t births(struct birth *all, size_t count);

/* Before operation `kind`: applies SIMNCCL_FAULT for this rank, which may change the
 * count and the root, and may not return. */
void faults(int kind, size_t *count, int *root, int size);
void faults_setup(void);

/* When memory is allocated; in the journal of the driver, the tag of its records has this and
 * the communicator's number in the process, from 1 on; 0: none. */
enum memory_phase {
	MEMORY_INIT = 1,
	MEMORY_OPERATION,
	MEMORY_THREAD,
	MEMORY_FOR_PROGRAM,
	MEMORY_JOB, /* on a thread that a group started for one of its communicators */
};
#define MEMORY_TAG(phase, serial) (1ull << 63 | (uint64_t)(phase) << 32 | (serial))

/* SIMNCCL_MEMORY: see memory.c. */
void memory_setup(void);
bool memory_on(void);
/* The calling thread uses this device from now on. */
void memory_device(int device);
void memory_born(ncclComm_t c);
void memory_used(ncclComm_t const *all, size_t count, bool grouped);
void memory_gone(ncclComm_t c);
bool memory_alloc(void **out, size_t bytes);
bool memory_free(void *p);

/* The calling function. */
struct call {
	unsigned api; /* enum nccl_api_id */
	ncclComm_t comm;
	uint64_t count, match, op_seq, stream, start_ns;
	int peer, reduction, type;
	bool grouped;
};
void note(const struct call *c, ncclResult_t result);

/* Of the simulated driver, where that is loaded. */
int current_device(void);
void put_on_stream(uint64_t stream, bool (*is_done)(void *), void *arg);

#endif
