/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_STATE_H
#define SIMCUDA_STATE_H

/*
 * state: memory of the simulated devices. Objects (allocations) in name spaces,
 * contexts and the threads' context stacks, physical memory and its mappings.
 * Everything here is called between begin() and end(), that is under one lock.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../bpf/memory/apis.h"
#include "../../bpf/launch/apis.h"
#include "cuda.h"
#include "journal.h"

#define MAX_DEVICES 16
#define MAX_CONTEXT_STACK 64
#define GRANULARITY (2ull << 20) /* of physical memory, as on real devices */
#define PITCH_ALIGN 512ull	 /* the value of real devices for most widths */

/* Name spaces of numbers. Values of different spaces may be equal. */
enum space {
	SPACE_MEMORY = 1, /* device, managed and stream-ordered pointers */
	SPACE_HOST,	  /* pinned allocations */
	SPACE_REGISTERED, /* the caller's own memory, pinned */
	SPACE_ARRAY,	  /* arrays and mipmapped arrays */
	SPACE_PHYSICAL,	  /* handles of cuMemCreate */
	SPACE_CONTEXT,
	SPACE_POOL,
	SPACE_STREAM,
	SPACE_EVENT,
	SPACE_MODULE,	/* modules and libraries */
	SPACE_FUNCTION, /* functions and kernels */
	SPACE_GRAPH,
	SPACE_EXEC, /* instantiated graphs */
	SPACE_IPC,  /* memory of other processes, opened here */
};

struct object {
	uint64_t ptr, size, alloc_seq;
	struct context *owner;	   /* NULL: none */
	struct object *next, *prev; /* the owner's list; next: also the reuse list */
	uint64_t pool;		   /* that it is from; 0: none */
	int device;
	uint8_t kind, space, size_class;
	bool low;     /* ptr comes from the 32-bit range */
	bool written; /* something was copied or set there */
	bool mipmap; /* a mipmapped array */
};

struct context {
	uint64_t handle;
	int device;
	bool primary;
	uint64_t alloc_seq; /* of its record; 0: it does not exist: a primary one that was not
			       retained yet, or was reset */
	unsigned retained; /* primary: usable while > 0 */
	struct object objects; /* list head */
};

/* Physical memory: exists while it has references or mappings; that of HIP also while the
 * address range exists where it was mapped last. */
struct physical {
	struct object object; /* size 0 and not accounted when imported */
	unsigned references, mappings;
	bool imported;
	struct range *range;   /* HIP: where it was mapped last; NULL: nowhere */
	struct physical *next; /* HIP: that the range holds */
};

struct pool {
	uint64_t handle;
	int device;
	uint64_t used, used_high, reserved, reserved_high; /* bytes */
	uint64_t settings[5]; /* CUmemPool_attribute 1 to 4, as they were set */
};

struct stream {
	uint64_t handle;
	struct context *context;
	struct graph *capture; /* that its work is captured into */
	unsigned flags;
	int priority;
};

struct sim {
	pthread_mutex_t lock;
	bool initialized, nest;
	bool held; /* HIP: address ranges hold what was mapped there */
	bool every_call; /* also queries are counted or journaled: no way around begin() */
	int devices;
	unsigned init_ms, context_ms;
	uint64_t capacity, fail_every;
	uint64_t calls, seq;
	uint64_t contexts; /* changes whenever a context may have ended; never 0 */
	uint64_t used[MAX_DEVICES]; /* bytes of device, array, pool and physical memory */
	uint64_t managed;	    /* bytes; may exceed a device's capacity */
	struct context primary[MAX_DEVICES];
	struct pool default_pool[MAX_DEVICES];
	uint64_t current_pool[MAX_DEVICES];
};
extern struct sim sim;

struct thread {
	uint64_t tag;
	uint64_t stack[MAX_CONTEXT_STACK]; /* context handles, which may be stale */
	unsigned depth;
	/* The device of the stack's top as long as sim.contexts is `known`; 0: not known. */
	uint64_t known;
	int device;
	int capture_mode;
	struct stream own; /* CU_STREAM_PER_THREAD, if it is being captured */
	unsigned outer_api; /* not 0: inside an exported entry that called another */
	uint8_t outer_kind;
	uint32_t tid; /* 0: not read yet */
};
extern __thread struct thread thread;

/* One driver call, on the stack of its entry. */
struct call {
	unsigned api;
	int device;    /* of the record of a failed call */
	uint64_t size, ptr; /* requested by a failed call */
	bool injected, recorded;
	uint64_t seq; /* of its first record */
};

/* Takes the lock. An error: the entry has no effect. Either way end() follows. */
CUresult begin(struct call *c, unsigned api);
/* Writes the call's record if nothing was recorded, and drops the lock. */
CUresult end(struct call *c, CUresult result);

/* Runs an expression that yields a CUresult as one table row's call `c`. */
#define RUN(symbol, expression)                         \
	({                                              \
		struct call c;                          \
		CUresult r_ = begin(&c, API_##symbol);  \
		if (r_ == CUDA_SUCCESS)                 \
			r_ = (expression);              \
		end(&c, r_);                            \
	})

void record(struct call *c, enum journal_type type, const struct object *o);

/* Work of one of DRIVER_CALLS, as in its record. */
struct work {
	uint64_t function, name; /* name: FNV-1a of all of it */
	uint64_t stream, bytes, nodes;
	uint64_t start_ns;
	uint32_t grid[3], block[3], shared_bytes;
	uint8_t direction, captured;
	const char *kernel; /* name of the launched kernel, under the lock */
	uint64_t graph;	    /* handle of the launched graph */
	uint64_t context;   /* that it is about, if it is given; 0: the current one */
};
/* See observer.h. Call these with the lock held, and without it. */
void observer_notify(const struct work *w, int32_t device);
void observer_load(void);
/* Writes the record of the call and drops the lock, as end() does. */
CUresult end_work(struct call *c, const struct work *w, CUresult result);
/* Number of a DRIVER_CALLS function in the journal. */
#define WORK_API(api) (MEMORY_API_COUNT - 1 + (api))
bool is_stream(CUstream s); /* 0: the default stream, 1: legacy, 2: per thread */

/* The device of a location; -1: memory there is the host's. */
CUresult location_device(CUmemLocation at, int *device);
CUresult pool_of(CUmemoryPool *out, CUdevice dev, bool is_default);

/* The table of everything that has a number. */
void *find(enum space space, uint64_t number);
void insert(enum space space, uint64_t number, void *value);
void forget(enum space space, uint64_t number);

/* Numbers for things: opaque handles. Reused, last freed first. */
uint64_t handle_new(void);
void handle_free(uint64_t handle);

/* Addresses of device memory, with the objects that are there (addresses.c). */
struct object *address_new(uint64_t size, bool low);
void address_free(struct object *o);
struct object *object_new(void); /* without an address */
void object_free(struct object *o);
void addresses_reset(void);
/* The allocation that contains the address; NULL: none. */
struct object *memory_at(uint64_t p); /* device, managed and stream-ordered memory, IPC's */
struct object *host_at(uint64_t p);   /* pinned memory, allocated or registered */
struct mapped {
	uint64_t address, size;
};
struct object *vmm_at(uint64_t p, struct mapped *mapped); /* physical memory that is mapped there */
void host_note(struct object *o);
void host_forget(const struct object *o);
/* Are all of the bytes mapped by the driver, and real? */
bool vmm_covers(uint64_t p, uint64_t n);
bool in_device_range(uint64_t p);

/* Contents of memory (contents.c). Unallocated addresses are ignored. */
void contents_copy(uint64_t to, uint64_t from, uint64_t n);
void contents_set(uint64_t p, uint32_t value, unsigned element_bytes, uint64_t n);
void contents_drop(uint64_t p, uint64_t n);

/* A pool has allocated `size` bytes more, or has freed them. */
void pool_account(uint64_t pool, uint64_t size, bool more);

/* The stack of this thread, or a context, has changed. */
void context_changed(void);

/* Allocates `size` bytes of device address; the pointer goes to *out. */
CUresult alloc_memory(struct call *c, enum alloc_kind kind, uint64_t size, int device, bool low,
		      uint64_t *out);
/* An object whose number the caller chose (host memory, arrays). */
CUresult alloc_object(struct call *c, enum space space, uint64_t number, uint64_t size,
		      bool mipmap);
/* Levels of a mipmapped array beyond the last one are ignored. */
CUresult array_create(struct call *c, CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d);
CUresult mipmap_create(struct call *c, CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
		       unsigned levels);
/* Room for `size` more bytes? */
bool fits(enum alloc_kind kind, int device, uint64_t size);
void account(enum alloc_kind kind, int device, uint64_t size, bool more);
void free_object(struct call *c, struct object *o, enum journal_type type);
CUresult free_memory(struct call *c, uint64_t p);

/* With SIMCUDA_NEST an entry calls another exported one, as drivers may: the effects of
 * the inner one count once, for the outer one. An injected failure hits the outer call,
 * before anything is called. */
void nest_begin(unsigned api, enum alloc_kind kind);
CUresult nest_end(CUresult r);
bool injected_now(unsigned api, CUresult *r);

/* examples/simhip: the library is started, and the thread on its first device. */
void device_begin(void);
/* The thread's context; NULL with *why set. */
struct context *current(CUresult *why);
void free_all(struct call *c, struct context *ctx);
void state_reset(void); /* no memory in use, no context exists */

#endif
