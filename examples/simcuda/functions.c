/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Properties of kernels and graphs: attributes, occupancy, a DOT dump; the waits of CUDA 13. Every kernel is
 * the same: 1,024 threads, 32 registers, no shared memory of its own.
 */
#include <stdio.h>

#include "exports.h"
#include "launch.h"
#include "state.h"

/* Runs an expression with the lock held; an unknown function is an error. */
#define WITH_FUNCTION(function, expression)                 \
	({                                                  \
		CUresult r_ = CUDA_ERROR_INVALID_HANDLE;    \
		pthread_mutex_lock(&sim.lock);              \
		if (find(SPACE_FUNCTION, function))         \
			r_ = (expression);                  \
		pthread_mutex_unlock(&sim.lock);            \
		r_;                                         \
	})

#define ATTRIBUTES 16 /* CUfunction_attribute: 0 to 15 */

static CUresult get(int *out, int attribute)
{
	static const int values[ATTRIBUTES] = {
		[0] = 1024,   /* threads of a block */
		[4] = 32,     /* registers of a thread */
		[5] = 90,     /* version of PTX, of the binary */
		[6] = 90,
		[8] = 232448, /* dynamic shared memory, with opt-in */
		[9] = -1,     /* no preference between shared memory and cache */
	};
	if (!out || attribute < 0 || attribute >= ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	*out = values[attribute];
	return CUDA_SUCCESS;
}

CUresult impl_cuFuncGetAttribute(int *out, int attribute, uint64_t function)
{
	return WITH_FUNCTION(function, get(out, attribute));
}

/* Values that are set are not stored. */
CUresult impl_cuFuncSetAttribute(uint64_t function, int attribute, int value)
{
	(void)value;
	return WITH_FUNCTION(function, attribute >= 8 && attribute < ATTRIBUTES ? CUDA_SUCCESS
									       : CUDA_ERROR_INVALID_VALUE);
}

CUresult impl_cuFuncSetCacheConfig(uint64_t function, int config)
{
	(void)config;
	return WITH_FUNCTION(function, CUDA_SUCCESS);
}

static CUresult occupancy(int *out, int threads)
{
	if (!out || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	int blocks = 2048 / ((threads + 31) & ~31); /* threads of an SM, by whole warps */
	*out = blocks > 32 ? 32 : blocks;
	return CUDA_SUCCESS;
}

CUresult impl_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, uint64_t function, int threads,
							  size_t shared)
{
	(void)shared;
	return WITH_FUNCTION(function, occupancy(out, threads));
}

CUresult impl_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, uint64_t function,
								   int threads, size_t shared,
								   unsigned flags)
{
	(void)shared, (void)flags;
	return WITH_FUNCTION(function, occupancy(out, threads));
}

/* The linker: its input does not matter, cuLinkComplete returns a program. */
CUresult impl_cuLinkCreate_v2(unsigned n, void *options, void *values, uint64_t *out)
{
	(void)n, (void)options, (void)values;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	*out = handle_new();
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult impl_cuLinkAddData_v2(uint64_t state, int type, const void *data, size_t size)
{
	(void)type;
	return state && data && size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuLinkDestroy(uint64_t state)
{
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	handle_free(state);
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

/* A description of a tensor, 128 bytes, which is never read. */
CUresult impl_cuTensorMapEncodeTiled(void *out)
{
	return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuProfilerStart(void)
{
	return CUDA_SUCCESS;
}

CUresult impl_cuProfilerStop(void)
{
	return CUDA_SUCCESS;
}

CUresult impl_cuGraphGetNodes(uint64_t graph, uint64_t *nodes, size_t *count);

/* Only how many nodes there are: a graph is no more than that. */
CUresult impl_cuGraphDebugDotPrint(uint64_t graph, const char *path, unsigned flags)
{
	size_t count;
	CUresult r = impl_cuGraphGetNodes(graph, NULL, &count);
	FILE *f = r == CUDA_SUCCESS && path ? fopen(path, "w") : NULL;
	(void)flags;
	if (r != CUDA_SUCCESS || !f)
		return CUDA_ERROR_INVALID_VALUE;
	fprintf(f, "digraph dot {\n");
	for (size_t i = 0; i < count; i++)
		fprintf(f, "\tnode%zu;\n", i);
	fprintf(f, "}\n");
	return fclose(f) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

ONLY(cuCtxSynchronize_v2, (CUcontext ctx), context_done(ctx), .context = ctx)
