/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_GRAPH_H
#define SIMCUDA_GRAPH_H

/* graph: graphs, and the captures that make them. Call all of it with the lock held. */
#include "state.h"

struct graph {
	uint64_t handle, nodes;
	uint64_t capture; /* number of the capture that made it; 0: none */
	bool capturing;
	bool invalid; /* the capture ends without a graph */
	bool adds; /* the graph is older than its capture, and remains as it was where that is lost */
	uint64_t before; /* nodes when the capture began */
	unsigned users;	 /* its handle, streams and events: freed with the last */
};

struct graph *graph_new(enum space space, uint64_t nodes);

/* A stream that can be captured: one that was made, or the thread's own. NULL: another. */
struct stream *stream_to_capture(uint64_t handle);
/* The graph that the stream is being captured into; NULL: none. */
struct graph *captured(uint64_t stream);
/* Makes a stream or an event part of a capture, or of none. */
void capture_set(struct graph **of, struct graph *g);
void capture_put(struct graph **of);
/* The stream does what cannot be captured, which makes its capture invalid: an error. */
CUresult no_capture(uint64_t stream);

#endif
