/* SPDX-License-Identifier: Apache-2.0 */

/* The entries about captures of streams. */
#include <stdlib.h>

#include "graph.h"
#include "launch.h"

void capture_put(struct graph **of)
{
	if (*of && !--(*of)->users)
		free(*of);
	*of = NULL;
}

void capture_set(struct graph **of, struct graph *g)
{
	if (g)
		g->users++;
	capture_put(of);
	*of = g;
}

struct stream *stream_to_capture(uint64_t handle)
{
	enum { CU_STREAM_PER_THREAD = 2 };

	return handle == CU_STREAM_PER_THREAD ? &thread.own : find(SPACE_STREAM, handle);
}

struct graph *captured(uint64_t stream)
{
	struct stream *s = stream_to_capture(stream);
	return s && s->capture && s->capture->capturing ? s->capture : NULL;
}

CUresult submit(struct work *w)
{
	if (!is_stream(w->stream))
		return CUDA_ERROR_INVALID_HANDLE;
	struct graph *g = captured(w->stream);
	if (!g)
		return CUDA_SUCCESS;
	if (g->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	g->nodes++;
	w->captured = 1;
	return CUDA_SUCCESS;
}

CUresult no_capture(uint64_t stream)
{
	struct graph *g = captured(stream);
	if (!g)
		return CUDA_SUCCESS;
	g->invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult impl_cuThreadExchangeStreamCaptureMode(int *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	int before = thread.capture_mode;
	thread.capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

/* CUstreamCaptureStatus: none 0, active 1. Dependencies of the work are unknown. */
static CUresult capture_info(uint64_t stream, int *status, uint64_t *id, uint64_t *graph,
			     const uint64_t **after, size_t *count)
{
	CUresult r = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&sim.lock);
	if (!status) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else if (is_stream(stream)) {
		struct graph *g = captured(stream);
		*status = g != NULL;
		if (g && id)
			*id = g->capture;
		if (g && graph)
			*graph = g->handle;
		if (after)
			*after = NULL;
		if (count)
			*count = 0;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return r;
}

CUresult impl_cuStreamIsCapturing(uint64_t stream, int *status)
{
	return capture_info(stream, status, NULL, NULL, NULL, NULL);
}

CUresult impl_cuStreamIsCapturing_ptsz(uint64_t stream, int *status)
{
	return impl_cuStreamIsCapturing(stream, status);
}

CUresult impl_cuStreamGetCaptureInfo_v2(uint64_t stream, int *status, uint64_t *id, uint64_t *graph,
					const uint64_t **after, size_t *count)
{
	return capture_info(stream, status, id, graph, after, count);
}

CUresult impl_cuStreamGetCaptureInfo_v2_ptsz(uint64_t stream, int *status, uint64_t *id,
					     uint64_t *graph, const uint64_t **after, size_t *count)
{
	return capture_info(stream, status, id, graph, after, count);
}

static uint64_t captures;

/* To the graph `to`, or, where that is 0, to a new one. */
static CUresult capture_begin(uint64_t stream, bool is_new, uint64_t to)
{
	struct stream *s = stream_to_capture(stream);
	if (!s || captured(stream))
		return CUDA_ERROR_INVALID_VALUE;
	struct graph *g = is_new ? graph_new(SPACE_GRAPH, 0) : find(SPACE_GRAPH, to);
	if (!g || g->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	g->capturing = true;
	g->adds = !is_new;
	g->before = g->nodes;
	g->capture = ++captures;
	capture_set(&s->capture, g);
	return CUDA_SUCCESS;
}

static CUresult capture_end(uint64_t stream, uint64_t *out)
{
	struct graph *g = captured(stream);
	if (!g || !out)
		return CUDA_ERROR_INVALID_VALUE;
	g->capturing = false;
	*out = g->invalid ? 0 : g->handle;
	if (!g->invalid)
		return CUDA_SUCCESS;
	if (g->adds) {
		g->invalid = false;
		g->nodes = g->before;
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	forget(SPACE_GRAPH, g->handle);
	handle_free(g->handle);
	capture_put(&g);
	return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

PTSZ(cuStreamBeginCapture, (CUstream s), capture_begin(s, true, 0), .stream = s)
PTSZ(cuStreamBeginCapture_v2, (CUstream s, int mode), capture_begin(s, true, 0), .stream = s)
PTSZ(cuStreamBeginCaptureToGraph,
     (CUstream s, uint64_t graph, const uint64_t *after, const void *edges, size_t count, int mode),
     capture_begin(s, false, graph), .stream = s)
PTSZ(cuStreamEndCapture, (CUstream s, uint64_t *out), capture_end(s, out), .stream = s)
