/* SPDX-License-Identifier: Apache-2.0 */

/* Kernels, as PTX that every driver since CUDA 9 compiles, and every way to launch them. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

/*
 * kit_empty returns at once. kit_spin multiplies and adds `n` times in a thread; its
 * result decides about a store that never happens, so that it is not optimized away.
 */
static const char program[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry kit_empty(.param .u64 n) { ret; }\n"
	".visible .entry kit_cooperative(.param .u64 n) { ret; }\n"
	".visible .entry kit_node(.param .u64 n) { ret; }\n"
	".visible .entry kit_spin(.param .u64 n)\n{\n"
	"	.reg .pred %p<2>;\n	.reg .f32 %f<3>;\n	.reg .u64 %rd<3>;\n"
	"	ld.param.u64 %rd1, [n];\n	mov.u64 %rd2, 0;\n"
	"	mov.f32 %f1, 0f3F800001;\n	mov.f32 %f2, 0f3F800000;\n"
	"again:\n	fma.rn.f32 %f2, %f2, %f1, %f1;\n"
	"	add.u64 %rd2, %rd2, 1;\n	setp.lt.u64 %p1, %rd2, %rd1;\n	@%p1 bra again;\n"
	"	setp.eq.f32 %p1, %f2, 0f00000000;\n	@%p1 st.global.f32 [%rd1], %f2;\n	ret;\n}\n";

struct config {
	unsigned grid[3], block[3], shared;
	void *stream, *attributes;
	unsigned count;
};

static void *module;

static int load(void)
{
	return module ? SUCCESS : CALL("cuModuleLoadData", (void **, const char *), &module, program);
}

void *kernel(const char *name, int *r)
{
	void *function = NULL;

	*r = load();
	if (!*r)
		*r = CALL("cuModuleGetFunction", (void **, void *, const char *), &function, module, name);
	return *r ? NULL : function;
}

int launch(const char *how, void *function, uint64_t argument, void *stream)
{
	void *arguments[] = {&argument};
	struct config c = {{4, 1, 1}, {32, 1, 1}, 0, stream, NULL, 0};

	if (!strcmp(how, "ex"))
		return CALL("cuLaunchKernelEx", (struct config *, void *, void **, void **), &c, function, arguments, NULL);
	if (!strcmp(how, "coop"))
		return CALL("cuLaunchCooperativeKernel",
			    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **),
			    function, 4, 1, 1, 32, 1, 1, 0, stream, arguments);
	return CALL("cuLaunchKernel",
		    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
		    function, 4, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
}

/* graph NODES N: captures that many launches once, and replays them. */
static int graph(uint64_t nodes, uint64_t n)
{
	void *stream = NULL, *made = NULL, *ready = NULL;
	int r = 0;
	void *function = kernel("kit_node", &r);

	if (!r)
		r = CALL("cuStreamCreate", (void **, unsigned), &stream, 1);
	if (!r)
		r = CALL("cuStreamBeginCapture_v2", (void *, int), stream, 2); /* relaxed */
	for (uint64_t i = 0; !r && i < nodes; i++)
		r = launch("plain", function, 0, stream);
	if (!r)
		r = CALL("cuStreamEndCapture", (void *, void **), stream, &made);
	if (!r)
		r = CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t), &ready, made, 0);
	for (uint64_t i = 0; !r && i < n; i++)
		r = CALL("cuGraphLaunch", (void *, void *), ready, stream);
	if (!r)
		r = CALL("cuStreamSynchronize", (void *), stream);
	if (ready)
		CALL("cuGraphExecDestroy", (void *), ready);
	if (made)
		CALL("cuGraphDestroy", (void *), made);
	if (stream)
		CALL("cuStreamDestroy_v2", (void *), stream);
	return r;
}

static int launch_many(const char *name, const char *how, uint64_t n)
{
	int r = 0;
	void *function = kernel(name, &r);

	for (uint64_t i = 0; !r && i < n; i++)
		r = launch(how, function, 0, NULL);
	return r ? r : CALL("cuCtxSynchronize", (void), );
}

bool launch_command(int argc, char **argv)
{
	int r;

	if (IS("module"))
		r = load();
	else if (IS("launch")) /* launch KERNEL HOW N */
		r = launch_many(TEXT(1, "kit_empty"), TEXT(2, "plain"), ARG(3, 1));
	else if (IS("graph"))
		r = graph(ARG(1, 1), ARG(2, 1));
	else if (IS("sync"))
		r = CALL("cuCtxSynchronize", (void), );
	else
		return false;
	answer_begin();
	answer_result(r);
	answer_end();
	return true;
}
