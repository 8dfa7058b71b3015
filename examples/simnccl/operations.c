/* SPDX-License-Identifier: Apache-2.0 */

/* Operations: issued by a call or at the end of a group, complete when all ranks have arrived. */
#include <stdlib.h>
#include <string.h>

#include "exports.h"

static const uint8_t type_bytes[] = NCCL_TYPE_BYTES;

static bool op_done(struct op *o)
{
	struct room *r = o->room;
	uint64_t last_ns = o->issued_ns;
	if (o->done)
		return true;
	if (!atomic_load(&r->aborted)) {
		if (o->kind == NCCL_OP_SEND) {
			if (!world_met(r->world, r->rank, o->peer, o->number))
				return false;
		} else if (o->kind == NCCL_OP_RECV) {
			if (!world_met(r->world, o->peer, r->rank, o->number))
				return false;
		} else if (!world_all_arrived(r->world, r->rank, o->number, &last_ns)) {
			return false;
		}
		uint64_t takes = sim.latency_ns;
		if (sim.bytes_per_second)
			takes += (uint64_t)((double)o->bytes / (double)sim.bytes_per_second * 1e9);
		if (takes && world_now_ns() < last_ns + takes)
			return false;
	}
	o->done = true;
	if (atomic_fetch_sub(&r->users, 1) == 1) {
		world_leave(r->world);
		free(r);
	}
	return true;
}

static bool work_done(void *arg)
{
	struct work *w = arg;
	bool done = true;
	for (size_t i = 0; i < w->count; i++)
		done = op_done(&w->ops[i]) && done;
	if (done)
		free(w);
	return done;
}

void issue(const struct op *ops, size_t count, uint64_t stream)
{
	struct work *w = malloc(sizeof(*w) + count * sizeof(*ops));
	if (!w)
		abort();
	w->count = count;
	memcpy(w->ops, ops, count * sizeof(*ops));
	for (size_t i = 0; i < count; i++)
		atomic_fetch_add(&w->ops[i].room->users, 1);
	put_on_stream(stream, work_done, w);
}

/* The thread's group ends and is not issued. */
static void group_dropped(void)
{
	struct thread *t = &thread;
	while (t->ops) {
		struct op *o = &t->op[--t->ops];
		struct room *r = o->room;
		if (o->kind == NCCL_OP_SEND)
			world_unsend(r->world, r->rank, o->peer);
		else if (o->kind == NCCL_OP_RECV)
			world_unreceive(r->world, o->peer, r->rank);
		else
			world_depart(r->world, r->rank);
	}
}

/* The communicators of the group are made. Returns its error, or theirs. */
static ncclResult_t group_births(void)
{
	struct thread *t = &thread;
	ncclResult_t r = births(t->birth, t->births), error = t->error;
	t->births = 0;
	t->error = ncclSuccess;
	return error ? error : r;
}

ncclResult_t group_end(void)
{
	struct thread *t = &thread;
	if (t->error)
		group_dropped();
	ncclResult_t r = group_births();
	memory_used(t->comm, t->ops, true);
	/* All of one stream together: neighbours, as programs do it. */
	for (size_t from = 0, to; from < t->ops; from = to) {
		for (to = from + 1; to < t->ops && t->stream[to] == t->stream[from]; to++)
			;
		issue(&t->op[from], to - from, t->stream[from]);
	}
	t->ops = 0;
	return r;
}

struct want {
	unsigned api;
	int kind;
	size_t count;
	int type, reduction, peer;
	ncclComm_t comm;
	cudaStream_t stream;
};

/* One operation: -1 for an argument that it does not have. */
static ncclResult_t operation(struct want w)
{
	struct call call = {.api = w.api, .comm = w.comm, .stream = w.stream, .start_ns = world_now_ns(),
			    .peer = w.peer, .reduction = w.reduction, .type = w.type, .count = w.count,
			    .grouped = thread.depth > 0};
	ncclResult_t r = ncclInvalidArgument;
	if (!valid(w.comm) || w.type < 0 || w.type >= NCCL_TYPE_COUNT ||
	    (w.peer != -1 && (w.peer < 0 || w.peer >= w.comm->nRanks)) || thread.ops == GROUP_MAX)
		goto out;
	faults(w.kind, &w.count, &w.peer, w.comm->nRanks);
	struct room *room = w.comm->room;
	struct op op = {.room = room, .kind = w.kind, .peer = w.peer, .bytes = w.count * type_bytes[w.type],
			.issued_ns = world_now_ns()};
	if (w.kind == NCCL_OP_SEND)
		op.number = world_send(room->world, room->rank, w.peer);
	else if (w.kind == NCCL_OP_RECV)
		op.number = world_receive(room->world, w.peer, room->rank);
	else
		op.number = world_arrive(room->world, room->rank,
					 (uint64_t)w.count << 24 ^ (uint64_t)w.kind << 16 ^
						 (uint64_t)w.type << 8 ^ (uint64_t)(w.peer + 1) << 56 ^
						 (uint64_t)(w.reduction + 1));
	call.match = op.number;
	call.count = w.count; /* as issued; a tracer sees the requested values */
	r = ncclSuccess;
	if (thread.depth) {
		thread.stream[thread.ops] = w.stream;
		thread.comm[thread.ops] = w.comm;
		thread.op[thread.ops++] = op;
	} else {
		memory_used(&w.comm, 1, false);
		issue(&op, 1, w.stream);
	}
out:
	if (r && thread.depth)
		thread.error = r;
	note(&call, r);
	return r;
}

#define WANT(symbol, op, ...) operation((struct want){.api = API_nccl##symbol, .kind = op, __VA_ARGS__})
#define BUFFERS const void *in, void *out, size_t count, ncclDataType_t type
#define END ncclComm_t comm, cudaStream_t stream
#define COMMON .count = count, .type = type, .comm = comm, .stream = stream

NCCL(AllReduce)(BUFFERS, ncclRedOp_t op, END)
{
	(void)in, (void)out;
	return WANT(AllReduce, NCCL_OP_ALL_REDUCE, COMMON, .reduction = op, .peer = -1);
}

NCCL(Broadcast)(BUFFERS, int root, END)
{
	(void)in, (void)out;
	return WANT(Broadcast, NCCL_OP_BROADCAST, COMMON, .reduction = -1, .peer = root);
}

NCCL(Bcast)(void *buffer, size_t count, ncclDataType_t type, int root, END)
{
	(void)buffer;
	return WANT(Bcast, NCCL_OP_BROADCAST, COMMON, .reduction = -1, .peer = root);
}

NCCL(Reduce)(BUFFERS, ncclRedOp_t op, int root, END)
{
	(void)in, (void)out;
	return WANT(Reduce, NCCL_OP_REDUCE, COMMON, .reduction = op, .peer = root);
}

NCCL(AllGather)(BUFFERS, END)
{
	(void)in, (void)out;
	return WANT(AllGather, NCCL_OP_ALL_GATHER, COMMON, .reduction = -1, .peer = -1);
}

NCCL(ReduceScatter)(BUFFERS, ncclRedOp_t op, END)
{
	(void)in, (void)out;
	return WANT(ReduceScatter, NCCL_OP_REDUCE_SCATTER, COMMON, .reduction = op, .peer = -1);
}

NCCL(AlltoAll)(BUFFERS, END)
{
	(void)in, (void)out;
	return WANT(AlltoAll, NCCL_OP_ALL_TO_ALL, COMMON, .reduction = -1, .peer = -1);
}

#ifdef RCCL
NCCL(AllToAll)(BUFFERS, END)
{
	(void)in, (void)out;
	return WANT(AlltoAll, NCCL_OP_ALL_TO_ALL, COMMON, .reduction = -1, .peer = -1);
}

NCCL(AllToAllv)(const void *in, const size_t *counts, const size_t *at, void *out, const size_t *theirs,
		const size_t *to, ncclDataType_t type, END)
{
	(void)in, (void)counts, (void)at, (void)out, (void)theirs, (void)to;
	return WANT(AlltoAll, NCCL_OP_ALL_TO_ALL, .type = type, .comm = comm, .stream = stream, .reduction = -1, .peer = -1);
}
#endif

NCCL(Gather)(BUFFERS, int root, END)
{
	(void)in, (void)out;
	return WANT(Gather, NCCL_OP_GATHER, COMMON, .reduction = -1, .peer = root);
}

NCCL(Scatter)(BUFFERS, int root, END)
{
	(void)in, (void)out;
	return WANT(Scatter, NCCL_OP_SCATTER, COMMON, .reduction = -1, .peer = root);
}

NCCL(Send)(const void *buffer, size_t count, ncclDataType_t type, int peer, END)
{
	(void)buffer;
	return WANT(Send, NCCL_OP_SEND, COMMON, .reduction = -1, .peer = peer);
}

NCCL(Recv)(void *buffer, size_t count, ncclDataType_t type, int peer, END)
{
	(void)buffer;
	return WANT(Recv, NCCL_OP_RECV, COMMON, .reduction = -1, .peer = peer);
}

NCCL(GroupStart)(void)
{
	thread.depth++;
	return ncclSuccess;
}

NCCL(GroupEnd)(void)
{
	struct call call = {.api = API_ncclGroupEnd, .start_ns = world_now_ns(), .peer = -1};
	ncclResult_t r = ncclInvalidUsage;
	if (thread.depth)
		r = --thread.depth ? ncclSuccess : group_end();
	note(&call, r);
	return r;
}

/* The estimate of a group that is not issued. Without an argument it is GroupEnd. */
static ncclResult_t group_simulated(ncclSimInfo_t *info)
{
	if (!info)
		return group_end();
	group_dropped();
	if (!thread.error && info->magic != NCCL_SIM_INFO_MAGIC)
		thread.error = ncclInvalidArgument;
	info->estimatedTime = 0;
	return group_births();
}

NCCL(GroupSimulateEnd)(ncclSimInfo_t *info)
{
	struct call call = {.api = API_ncclGroupSimulateEnd, .start_ns = world_now_ns(), .peer = -1};
	ncclResult_t r = ncclInvalidUsage;
	if (thread.depth)
		r = --thread.depth ? ncclSuccess : group_simulated(info);
	note(&call, r);
	return r;
}

NCCL(MemAlloc)(void **out, size_t bytes)
{
	struct call call = {.api = API_ncclMemAlloc, .start_ns = world_now_ns(), .peer = -1, .count = bytes};
	ncclResult_t r = out && bytes ? ncclSuccess : ncclInvalidArgument;
	if (r == ncclSuccess && !memory_alloc(out, bytes))
		*out = malloc(1); /* an address is all that it is */
	note(&call, r);
	return r;
}

NCCL(MemFree)(void *p)
{
	struct call call = {.api = API_ncclMemFree, .start_ns = world_now_ns(), .peer = -1};
	if (!memory_free(p))
		free(p);
	note(&call, ncclSuccess);
	return ncclSuccess;
}
