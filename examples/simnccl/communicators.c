/* SPDX-License-Identifier: Apache-2.0 */

/* Communicators: their creation, end and properties. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "exports.h"

__thread struct thread thread;
struct sim sim = {.rank = -1};

/* FNV-1a */
static uint64_t hash(const void *bytes, size_t n, uint64_t h)
{
	for (const unsigned char *p = bytes; n--; p++)
		h = (h ^ *p) * 0x100000001b3ull;
	return h;
}
#define HASH_BASIS 0xcbf29ce484222325ull

bool valid(ncclComm_t comm)
{
	return comm && comm->startMagic == NCCL_MAGIC && comm->endMagic == NCCL_MAGIC;
}

static ncclComm_t comm_new(uint64_t id, int size, int rank, int device)
{
	ncclComm_t c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	c->startMagic = c->endMagic = NCCL_MAGIC;
	c->commHash = id;
	c->rank = rank;
	c->nRanks = size;
	c->cudaDev = device;
	c->serial = atomic_fetch_add(&sim.communicators, 1) + 1;
	return c;
}

static ncclResult_t enter_world(ncclComm_t c)
{
	struct room *r = calloc(1, sizeof(*r));
	if (!r)
		abort();
	r->world = world_join(c->commHash, c->nRanks, c->rank);
	if (!r->world) {
		free(r);
		return ncclSystemError;
	}
	r->users = 1;
	r->rank = c->rank;
	r->size = c->nRanks;
	c->room = r;
	int none = -1;
	atomic_compare_exchange_strong(&sim.rank, &none, c->rank);
	return ncclSuccess;
}

/* The first half of the creation: others must be able to see us before we wait for them. */
static ncclResult_t announce(struct birth *b)
{
	if (!b->parent)
		return enter_world(b->comm);
	return ncclSuccess;
}

static void *serve(void *unused)
{
	pthread_setname_np(pthread_self(), "NCCL Service  0");
	for (;;)
		pause();
	return unused;
}

/* NCCL has a thread for each communicator, by which it is seen from outside that there is one; here
 * one for all, and none where those of memory.c are. */
static void have_thread(void)
{
	pthread_t of;

	if (!memory_on() && !pthread_create(&of, NULL, serve, NULL))
		pthread_detach(of);
}

ncclResult_t be_born(struct birth *b)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, have_thread);
	if (b->parent) {
		int rank, size;
		world_parts(b->parent->room->world, b->parent->rank, b->number, &rank, &size);
		if (b->color == NCCL_SPLIT_NOCOLOR) {
			free(b->comm);
			*b->out = NULL;
			return ncclSuccess;
		}
		b->comm->rank = rank;
		b->comm->nRanks = size;
		if (enter_world(b->comm) != ncclSuccess)
			return ncclSystemError;
	}
	memory_born(b->comm);
	world_complete(b->comm->room->world, true);
	*b->out = b->comm;
	return ncclSuccess;
}

struct job {
	struct birth *birth;
	ncclResult_t result;
};

static void *job_run(void *arg)
{
	struct job *j = arg;
	thread.is_job = true;
	memory_device(j->birth->comm->cudaDev);
	j->result = be_born(j->birth);
	return NULL;
}

ncclResult_t births(struct birth *all, size_t count)
{
	ncclResult_t r = ncclSuccess;
	struct job job[WORLD_RANKS];
	pthread_t on[WORLD_RANKS];
	if (!memory_on()) {
		for (size_t i = 0; i < count; i++) {
			ncclResult_t one = be_born(&all[i]);
			if (one != ncclSuccess)
				r = one;
		}
		return r;
	}
	for (size_t i = 0; i < count; i++) {
		job[i] = (struct job){.birth = &all[i]};
		if (pthread_create(&on[i], NULL, job_run, &job[i]))
			abort();
	}
	for (size_t i = 0; i < count; i++) {
		pthread_join(on[i], NULL);
		if (job[i].result != ncclSuccess)
			r = job[i].result;
	}
	return r;
}

/* Now, or when the thread's group ends. */
static ncclResult_t born_now_or_later(struct birth b)
{
	ncclResult_t r = announce(&b);
	if (r != ncclSuccess)
		return r;
	if (!b.parent)
		*b.out = b.comm; /* as NCCL does, before the ranks are there */
	if (!thread.depth)
		return be_born(&b);
	if (thread.births == sizeof(thread.birth) / sizeof(*thread.birth))
		return ncclInternalError;
	thread.birth[thread.births++] = b;
	return ncclSuccess;
}

NCCL(GetUniqueId)(ncclUniqueId *out)
{
	if (!out)
		return ncclInvalidArgument;
	if (getrandom(out->internal, sizeof(out->internal), 0) != sizeof(out->internal))
		return ncclSystemError;
	memcpy(out->internal, "simnccl", 8);
	return ncclSuccess;
}

static ncclResult_t init_rank(unsigned api, ncclComm_t *out, int size, const ncclUniqueId *id, int rank)
{
	struct call call = {.api = api, .start_ns = world_now_ns(), .peer = rank, .count = (uint64_t)size};
	ncclResult_t r = ncclInvalidArgument;
	if (out && size >= 1 && size <= WORLD_RANKS && rank >= 0 && rank < size) {
		ncclComm_t c = comm_new(hash(id, sizeof(*id), HASH_BASIS), size, rank, current_device());
		call.comm = c;
		r = born_now_or_later((struct birth){.comm = c, .out = out});
	}
	note(&call, r);
	return r;
}

NCCL(CommInitRank)(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
	return init_rank(API_ncclCommInitRank, out, size, &id, rank);
}

#ifdef RCCL
NCCL(CommInitRankMulti)(ncclComm_t *out, int size, ncclUniqueId id, int rank, int virtual)
{
	(void)virtual;
	return init_rank(API_ncclCommInitRank, out, size, &id, rank);
}
#endif

NCCL(CommInitRankConfig)(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	(void)config;
	return init_rank(API_ncclCommInitRankConfig, out, size, &id, rank);
}

NCCL(CommInitRankScalable)(ncclComm_t *out, int size, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config)
{
	(void)config;
	return ids < 1 || !id ? ncclInvalidArgument : init_rank(API_ncclCommInitRankScalable, out, size, id, rank);
}

NCCL(CommInitAll)(ncclComm_t *out, int size, const int *devices)
{
	struct call call = {.api = API_ncclCommInitAll, .start_ns = world_now_ns(), .count = (uint64_t)size, .peer = -1};
	ncclResult_t r = ncclInvalidArgument;
	uint64_t id;
	if (out && size >= 1 && size <= WORLD_RANKS && getrandom(&id, sizeof(id), 0) == sizeof(id)) {
		struct birth all[WORLD_RANKS];
		r = ncclSuccess;
		for (int i = 0; i < size && r == ncclSuccess; i++) {
			out[i] = comm_new(id, size, i, devices ? devices[i] : i);
			all[i] = (struct birth){.comm = out[i], .out = &out[i]};
			r = enter_world(out[i]);
		}
		if (r == ncclSuccess && memory_on())
			r = births(all, (size_t)size);
	}
	note(&call, r);
	return r;
}

static ncclResult_t child(unsigned api, ncclComm_t parent, int color, int key, ncclComm_t *out)
{
	struct call call = {.api = api, .start_ns = world_now_ns(), .comm = parent, .peer = color, .count = (uint64_t)key};
	ncclResult_t r = ncclInvalidArgument;
	if (valid(parent) && out) {
		*out = NULL;
		uint32_t number = ++parent->splits;
		uint64_t id = hash(&color, sizeof(color), hash(&number, sizeof(number), parent->commHash));
		world_split(parent->room->world, parent->rank, number, color, key);
		r = born_now_or_later((struct birth){.comm = comm_new(id, 0, 0, parent->cudaDev), .out = out,
						     .parent = parent, .number = number, .color = color});
	}
	note(&call, r);
	return r;
}

NCCL(CommSplit)(ncclComm_t parent, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
	(void)config;
	return child(API_ncclCommSplit, parent, color, key, out);
}

/* Excluded ranks do not call. */
NCCL(CommShrink)(ncclComm_t parent, int *excluded, int count, ncclComm_t *out, ncclConfig_t *config, int flags)
{
	struct call call = {.api = API_ncclCommShrink, .start_ns = world_now_ns(), .comm = parent, .peer = -1, .count = (uint64_t)count};
	ncclResult_t r = ncclInvalidArgument;
	(void)config, (void)flags;
	if (valid(parent) && out && excluded && count > 0 && count < parent->nRanks) {
		uint32_t number = ++parent->splits;
		uint64_t id = hash(&number, sizeof(number), parent->commHash ^ 0x5ca1ab1e);
		int rank = parent->rank;
		for (int i = 0; i < count; i++) {
			id ^= hash(&excluded[i], sizeof(int), HASH_BASIS);
			rank -= excluded[i] < parent->rank;
		}
		ncclComm_t c = comm_new(id, parent->nRanks - count, rank, parent->cudaDev);
		r = born_now_or_later((struct birth){.comm = c, .out = out});
	}
	note(&call, r);
	return r;
}

static ncclResult_t leave(unsigned api, ncclComm_t c, bool abort)
{
	struct call call = {.api = api, .start_ns = world_now_ns(), .comm = c, .peer = -1};
	if (!valid(c)) {
		note(&call, ncclInvalidArgument);
		return ncclInvalidArgument;
	}
	note(&call, ncclSuccess);
	memory_gone(c);
	if (abort)
		atomic_store(&c->room->aborted, true);
	if (atomic_fetch_sub(&c->room->users, 1) == 1) {
		world_leave(c->room->world);
		free(c->room);
	}
	memset(c, 0, sizeof(*c));
	free(c);
	return ncclSuccess;
}

NCCL(CommFinalize)(ncclComm_t c)
{
	struct call call = {.api = API_ncclCommFinalize, .start_ns = world_now_ns(), .comm = c, .peer = -1};
	ncclResult_t r = valid(c) ? ncclSuccess : ncclInvalidArgument;
	note(&call, r);
	return r;
}

NCCL(CommDestroy)(ncclComm_t c)
{
	return leave(API_ncclCommDestroy, c, false);
}

NCCL(CommAbort)(ncclComm_t c)
{
	return leave(API_ncclCommAbort, c, true);
}

/* Properties of a communicator. */
#define ANSWER(symbol, type, expression)                      \
	NCCL(symbol)(const ncclComm_t c, type *out)           \
	{                                                     \
		if (!valid(c) || !out)                        \
			return ncclInvalidArgument;           \
		*out = (expression);                          \
		return ncclSuccess;                           \
	}
ANSWER(CommCount, int, c->nRanks)
ANSWER(CommCuDevice, int, c->cudaDev)
ANSWER(CommUserRank, int, c->rank)
ANSWER(CommGetAsyncError, ncclResult_t, c->async_error)

/* The last error: there is no text besides its code. */
__attribute__((visibility("default"))) const char *ncclGetLastError(ncclComm_t c)
{
	(void)c;
	return "";
}

/* Buffers need not be registered: nothing is transferred. The handle is the buffer. */
NCCL(CommRegister)(const ncclComm_t c, void *buffer, size_t bytes, void **handle)
{
	if (!valid(c) || !buffer || !bytes || !handle)
		return ncclInvalidArgument;
	*handle = buffer;
	return ncclSuccess;
}

NCCL(CommDeregister)(const ncclComm_t c, void *handle)
{
	(void)handle;
	return valid(c) ? ncclSuccess : ncclInvalidArgument;
}

/* Operations beyond the five of NCCL: numbers, by communicator, never used again. */
NCCL(RedOpCreatePreMulSum)(ncclRedOp_t *out, void *scalar, ncclDataType_t type, int residence, ncclComm_t c)
{
	enum { NCCL_OPERATIONS = 5 };
	(void)type, (void)residence;
	if (!out || !scalar || !valid(c))
		return ncclInvalidArgument;
	*out = NCCL_OPERATIONS + (int)c->operations++;
	return ncclSuccess;
}

NCCL(RedOpDestroy)(ncclRedOp_t op, ncclComm_t c)
{
	(void)op;
	return valid(c) ? ncclSuccess : ncclInvalidArgument;
}
