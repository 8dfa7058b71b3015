/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The entries of DRIVER_CALLS about streams, events and graphs, and those that make
 * and end events and graphs. A graph is a number of nodes. Captures: capture.c.
 */
#include <stdlib.h>

#include "graph.h"
#include "later.h"
#include "launch.h"

struct event {
	uint64_t handle, stream;
	uint64_t recorded_ns; /* CLOCK_MONOTONIC; 0: never */
	unsigned flags;
	struct graph *capture;
};

/* --------------------------------------------------------------- events and waits */

CUresult impl_cuEventCreate(CUevent *out, unsigned flags)
{
	struct event *e = calloc(1, sizeof(*e));
	if (!out || !e) {
		free(e);
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&sim.lock);
	*out = e->handle = handle_new();
	e->flags = flags;
	insert(SPACE_EVENT, e->handle, e);
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult impl_cuEventDestroy_v2(CUevent handle)
{
	later_forget(handle);
	pthread_mutex_lock(&sim.lock);
	struct event *e = find(SPACE_EVENT, handle);
	if (e) {
		capture_put(&e->capture);
		forget(SPACE_EVENT, handle);
		handle_free(handle);
		free(e);
	}
	pthread_mutex_unlock(&sim.lock);
	return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/*
 * Work on a stream completes at once, except work queued by libraries.
 * That has its own lock, and waiters do not hold the driver's.
 */
#define LATER(expression)                          \
	({                                         \
		pthread_mutex_unlock(&sim.lock);   \
		bool done_ = (expression);         \
		pthread_mutex_lock(&sim.lock);     \
		done_;                             \
	})

static CUresult done(bool is_done)
{
	return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_record(struct work *w, CUevent handle)
{
	struct event *e = find(SPACE_EVENT, handle);
	if (!e || !is_stream(w->stream))
		return CUDA_ERROR_INVALID_HANDLE;
	e->stream = w->stream;
	e->recorded_ns = w->start_ns;
	capture_set(&e->capture, captured(w->stream));
	LATER((later_record(handle, w->stream), true));
	return CUDA_SUCCESS;
}

static CUresult event_done(struct work *w, CUevent handle, bool wait)
{
	struct event *e = find(SPACE_EVENT, handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	w->stream = e->stream;
	return done(LATER(later_event(handle, wait)));
}

static CUresult stream_wait(struct work *w, CUevent handle)
{
	struct event *e = find(SPACE_EVENT, handle);
	struct stream *s = stream_to_capture(w->stream);
	if (!e || !is_stream(w->stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (s && e->capture && e->capture->capturing)
		capture_set(&s->capture, e->capture);
	LATER((later_after(w->stream, handle), true));
	return CUDA_SUCCESS;
}

static CUresult stream_done(uint64_t stream, bool wait)
{
	if (!is_stream(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = no_capture(stream);
	return r ? r : done(LATER(later_stream(stream, wait)));
}

CUresult context_done(CUcontext handle)
{
	CUresult why = CUDA_ERROR_INVALID_CONTEXT;
	if (handle ? !find(SPACE_CONTEXT, handle) : !current(&why))
		return why;
	return done(LATER(later_all(true)));
}

/* Between the calls that recorded them: nothing is executed, so it is host time. */
static CUresult elapsed(float *out, CUevent from, CUevent to)
{
	enum { DISABLE_TIMING = 2 };
	struct event *a = find(SPACE_EVENT, from), *b = find(SPACE_EVENT, to);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!a || !b || !a->recorded_ns || !b->recorded_ns || (a->flags | b->flags) & DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (float)(int64_t)(b->recorded_ns - a->recorded_ns) / 1e6f;
	return CUDA_SUCCESS;
}

CUresult impl_cuEventElapsedTime(float *out, CUevent from, CUevent to)
{
	pthread_mutex_lock(&sim.lock);
	CUresult r = elapsed(out, from, to);
	pthread_mutex_unlock(&sim.lock);
	return r;
}

PTSZ(cuStreamSynchronize, (CUstream s), stream_done(s, true), .stream = s)
PTSZ(cuStreamQuery, (CUstream s), stream_done(s, false), .stream = s)
ONLY(cuCtxSynchronize, (void), context_done(0))
ONLY(cuEventSynchronize, (CUevent e), event_done(&w, e, true))
ONLY(cuEventQuery, (CUevent e), event_done(&w, e, false))
PTSZ(cuEventRecord, (CUevent e, CUstream s), event_record(&w, e), .stream = s)
PTSZ(cuEventRecordWithFlags, (CUevent e, CUstream s), event_record(&w, e), .stream = s)
PTSZ(cuStreamWaitEvent, (CUstream s, CUevent e), stream_wait(&w, e), .stream = s)

/* --------------------------------------------------------------------------- graphs */

struct graph *graph_new(enum space space, uint64_t nodes)
{
	struct graph *g = calloc(1, sizeof(*g));
	if (!g)
		abort();
	*g = (struct graph){.handle = handle_new(), .nodes = nodes, .users = 1};
	insert(space, g->handle, g);
	return g;
}

static CUresult graph_end(enum space space, uint64_t handle)
{
	pthread_mutex_lock(&sim.lock);
	struct graph *g = find(space, handle);
	bool found = g != NULL;
	if (found) {
		forget(space, handle);
		handle_free(handle);
		g->capturing = false;
		capture_put(&g);
	}
	pthread_mutex_unlock(&sim.lock);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult graph_create(uint64_t *out, unsigned flags)
{
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*out = graph_new(SPACE_GRAPH, 0)->handle;
	return CUDA_SUCCESS;
}

ONLY(cuGraphCreate, (uint64_t *out, unsigned flags), graph_create(out, flags))

CUresult impl_cuGraphDestroy(uint64_t graph)
{
	return graph_end(SPACE_GRAPH, graph);
}

CUresult impl_cuGraphExecDestroy(uint64_t exec)
{
	return graph_end(SPACE_EXEC, exec);
}

CUresult impl_cuGraphGetNodes(uint64_t graph, uint64_t *nodes, size_t *count)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	struct graph *g = find(SPACE_GRAPH, graph);
	if (g && count) {
		for (size_t i = 0; nodes && i < *count; i++)
			nodes[i] = i < g->nodes ? g->handle + i + 1 : 0;
		if (!nodes || *count > g->nodes)
			*count = g->nodes;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return r;
}

/* A copy of a graph, or what runs it. */
static CUresult made_of(enum space space, uint64_t *out, uint64_t graph)
{
	struct graph *g = find(SPACE_GRAPH, graph);
	if (!g || !out)
		return g ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*out = graph_new(space, g->nodes)->handle;
	return CUDA_SUCCESS;
}

static CUresult instantiate(uint64_t *out, uint64_t graph)
{
	return made_of(SPACE_EXEC, out, graph);
}

ONLY(cuGraphClone, (uint64_t *out, uint64_t graph), made_of(SPACE_GRAPH, out, graph))
ONLY(cuGraphInstantiate, (uint64_t *out, uint64_t graph), instantiate(out, graph))
ONLY(cuGraphInstantiate_v2, (uint64_t *out, uint64_t graph), instantiate(out, graph))
ONLY(cuGraphInstantiateWithFlags, (uint64_t *out, uint64_t graph), instantiate(out, graph))
PTSZ(cuGraphInstantiateWithParams, (uint64_t *out, uint64_t graph), instantiate(out, graph))

static CUresult node(uint64_t *out, uint64_t graph)
{
	struct graph *g = find(SPACE_GRAPH, graph);
	if (!g || !out)
		return g ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*out = g->handle + ++g->nodes; /* never read */
	return CUDA_SUCCESS;
}

#define NODE(symbol) ONLY(symbol, (uint64_t *out, uint64_t graph), node(out, graph))
NODE(cuGraphAddKernelNode)
NODE(cuGraphAddKernelNode_v2)
NODE(cuGraphAddMemcpyNode)
NODE(cuGraphAddMemsetNode)
NODE(cuGraphAddHostNode)
NODE(cuGraphAddChildGraphNode)
NODE(cuGraphAddEmptyNode)
NODE(cuGraphAddEventRecordNode)
NODE(cuGraphAddEventWaitNode)
NODE(cuGraphAddMemAllocNode)
NODE(cuGraphAddMemFreeNode)
NODE(cuGraphAddNode)
NODE(cuGraphAddNode_v2)
#ifdef VENDOR_HIP
NODE(hipGraphAddMemcpyNode1D)
NODE(hipGraphAddMemcpyNodeFromSymbol)
NODE(hipGraphAddMemcpyNodeToSymbol)
NODE(hipGraphAddBatchMemOpNode)
NODE(hipDrvGraphAddMemcpyNode)
NODE(hipDrvGraphAddMemsetNode)
NODE(hipDrvGraphAddMemFreeNode)
ONLY(hipDeviceSynchronize, (void), context_done(0))
#endif

static CUresult graph_launch(struct work *w, uint64_t exec)
{
	struct graph *g = find(SPACE_EXEC, exec);
	if (!g)
		return CUDA_ERROR_INVALID_HANDLE;
	w->nodes = g->nodes;
	w->graph = g->handle;
	return submit(w);
}

PTSZ(cuGraphLaunch, (uint64_t exec, CUstream s), graph_launch(&w, exec), .stream = s)
