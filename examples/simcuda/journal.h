/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_JOURNAL_H
#define SIMCUDA_JOURNAL_H

/*
 * journal: the simulated driver's calls and their effects, in order of execution: the
 * truth that a tracer's numbers are compared with.
 *
 * One file per process image, written through a shared mapping, so that all records up to
 * the last one are in the file, no matter how the process ends. Layout: one header of
 * JOURNAL_HEADER bytes, then `count` records. The file is longer while the process runs:
 * only `count` defines its end. All numbers are in the machine's byte order (little
 * endian on x86-64, arm64).
 */

#include <stdbool.h>
#include <stdint.h>

#define JOURNAL_MAGIC "SIMCUDA1"
#define JOURNAL_HEADER 65536 /* the largest page size: the records are mapped from here */
#define JOURNAL_NAMES 256 /* offset of the API names in the header */

struct journal_header {
	char magic[8];
	uint32_t version; /* 1 */
	uint32_t header_size, record_size;
	uint32_t pid;	      /* in the process's own pid namespace */
	uint64_t start_ticks; /* /proc/PID/stat field 22: clock ticks since boot */
	uint64_t opened_ns;   /* CLOCK_MONOTONIC */
	uint64_t count;	      /* records written */
	uint64_t lost;	      /* records for which the file could not grow */
	uint64_t capacity;    /* bytes per device */
	uint32_t devices;
	uint32_t ended; /* 1 after a normal exit or simcuda_flush(), else 0 */
	char comm[16];
	uint32_t image; /* 0, 1, …: several images (exec) of one process */
	uint32_t api_count;
	/* at JOURNAL_NAMES: api_count NUL-terminated names, number 0 first */
};

enum journal_type {
	JOURNAL_CALL = 1,     /* a call without an effect on memory in use, or a failed one */
	JOURNAL_ALLOC = 2,    /* an allocation begins */
	JOURNAL_FREE = 3,     /* it ends because a call freed it */
	JOURNAL_IMPLICIT = 4, /* it ends with its context; cause: the call's record */
	JOURNAL_WORK = 5,     /* a call of DRIVER_CALLS: work, copies, waits, names */
	/* A call of NCCL (examples/simnccl). ptr: communicator; size: count; context: its
	 * identity; device: rank; kind: type; alloc_seq: number of the collective, or of the
	 * send or receive of that pair; grid[0]: root or peer; grid[1]: reduction; NESTED: in
	 * a group. */
	JOURNAL_COLLECTIVE = 6,
	JOURNAL_HELD = 7, /* HIP: it was released and unmapped, and its address range holds it */
};

enum journal_flag {
	JOURNAL_FIRST = 1,    /* the first record of its call: these count calls */
	JOURNAL_INJECTED = 2, /* failed by SIMCUDA_FAIL_EVERY */
	JOURNAL_NESTED = 4,   /* made by an exported entry that another one called */
	JOURNAL_UNKNOWN_SIZE = 8, /* an import: the size is not the caller's to know */
};

struct journal_record {
	uint64_t seq;	    /* 1, 2, … in the process */
	uint64_t time_ns;   /* CLOCK_MONOTONIC */
	uint64_t tag;	    /* simcuda_tag() of the calling thread */
	uint64_t ptr;	    /* pointer or handle */
	uint64_t size;	    /* bytes: held, or requested by a failed call */
	uint64_t context;   /* owner; 0: none (virtual memory management) */
	uint64_t alloc_seq; /* of FREE and IMPLICIT: the ALLOC record's seq; of WORK: nodes
			       of the graph that was launched */
	uint64_t cause;	    /* of IMPLICIT: the seq of the call's own record; of WORK: the
			       FNV-1a of the kernel's name */
	uint32_t tid;
	int32_t result; /* CUresult */
	int32_t device; /* ordinal; -1: unknown, or host memory of cuMemCreate */
	uint16_t api;	/* of the outermost call: enum memory_api_id, then DRIVER_CALLS */
	uint8_t type, kind, flags;
	/* Of WORK, else 0: */
	uint8_t direction; /* enum copy_direction */
	uint8_t captured;  /* 1: it became a node of a graph */
	uint8_t pad;
	uint32_t grid[3], block[3];
	uint32_t shared_bytes;
	uint64_t stream;   /* 1: the default stream, 2: of the thread, 0: none */
	uint64_t start_ns; /* CLOCK_MONOTONIC; time_ns is the end */
};
_Static_assert(sizeof(struct journal_record) == 128, "the reader relies on it");

/* The writing program's description of itself (names.c). */
extern const char journal_program[];
extern const char journal_api_names[]; /* number 0 first, NUL-terminated each */
extern const uint32_t journal_names_bytes, journal_api_count;

/* All of these are called with the driver's lock held. */
void journal_setup(const char *dir, uint32_t devices, uint64_t capacity);
bool journal_on(void);
void journal_write(const struct journal_record *r);
void journal_kernel(const char *name);
/* The child of a fork gets its own file with its first record. */
void journal_forked(void);
/* Marks the file as ended and frees its unused tail. Writing may continue. */
void journal_flush(void);

#endif
