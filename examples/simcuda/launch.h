/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_LAUNCH_H
#define SIMCUDA_LAUNCH_H

/*
 * launch: one call of DRIVER_CALLS, from its entry to its record. The effect of the
 * entry, besides its record, is an expression that runs with the lock held.
 */
#include "state.h"

/* Most entries ignore most of their arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Begins it: takes the lock. `w` is filled further by the expression. */
CUresult work_begin(struct call *c, struct work *w, unsigned api);

/* Runs an expression that yields a CUresult as one call, described by `w`. */
#define WORK(symbol, expression, ...)                               \
	({                                                          \
		struct call c;                                      \
		struct work w = {__VA_ARGS__};                      \
		CUresult r_ = work_begin(&c, &w, API_##symbol);     \
		if (r_ == CUDA_SUCCESS)                             \
			r_ = (expression);                          \
		end_work(&c, &w, r_);                               \
	})

/* Two exported forms of one function: `symbol`, and that with another default stream. */
#define FORMS(symbol, suffix, parameters, expression, ...)          \
	CUresult impl_##symbol parameters                           \
	{                                                           \
		return WORK(symbol, expression, __VA_ARGS__);       \
	}                                                           \
	CUresult impl_##symbol##suffix parameters                   \
	{                                                           \
		return WORK(symbol##suffix, expression, __VA_ARGS__); \
	}
#define PTSZ(symbol, parameters, expression, ...) FORMS(symbol, _ptsz, parameters, expression, __VA_ARGS__)
#define PTDS(symbol, parameters, expression, ...) FORMS(symbol, _ptds, parameters, expression, __VA_ARGS__)
#define ONLY(symbol, parameters, expression, ...)                   \
	CUresult impl_##symbol parameters                           \
	{                                                           \
		return WORK(symbol, expression, __VA_ARGS__);       \
	}

/* The work goes to a graph if its stream is being captured. */
CUresult submit(struct work *w);
/* Of w->function, with its shape. */
CUresult launch(struct work *w);
/* Linear copies and sets happen, at once, if they are not captured. */
CUresult copy(struct work *w, uint64_t to, uint64_t from);
CUresult set(struct work *w, uint64_t p, unsigned value, unsigned element_bytes, uint64_t n);
/* Waits for all of the process: contexts are not distinguished. 0: the current one. */
CUresult context_done(CUcontext handle);
/* examples/simhip: a program's handle of a kernel, which may have been another's. */
void function_register(struct work *w, uint64_t handle, const char *name);

#endif
