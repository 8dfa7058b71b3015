/* SPDX-License-Identifier: Apache-2.0 */

/* Collectives of one rank, with the NCCL that is installed. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

struct id { char bytes[128]; };

static struct library nccl;

/* nccl N: a communicator of one rank, N reductions of 256 floats, N / 2 broadcasts. */
static int run(uint64_t n)
{
	struct id id = {{0}};
	void *communicator = NULL, *stream = NULL;
	uint64_t p = 0;
	int r;

	if (!open_first(&nccl, (const char *const[]){getenv("GPU_KIT_NCCL") ?: "", "libnccl.so.2", NULL}))
		return MISSING;
	r = CALL_IN(nccl, "ncclGetUniqueId", (struct id *), &id);
	if (!r)
		r = CALL_IN(nccl, "ncclCommInitRank", (void **, int, struct id, int), &communicator, 1, id, 0);
	if (!r)
		r = CALL("cuStreamCreate", (void **, unsigned), &stream, 1);
	if (!r)
		r = CALL("cuMemAlloc_v2", (uint64_t *, size_t), &p, 4096);
	for (uint64_t i = 0; i < n && !r; i++) {
		r = CALL_IN(nccl, "ncclAllReduce", (uint64_t, uint64_t, size_t, int, int, void *, void *), p, p, 256, 7, 0,
			    communicator, stream);
		if (!r && i % 2)
			r = CALL_IN(nccl, "ncclBroadcast", (uint64_t, uint64_t, size_t, int, int, void *, void *), p, p, 256,
				    7, 0, communicator, stream);
	}
	if (!r)
		r = CALL("cuStreamSynchronize", (void *), stream);
	if (p)
		CALL("cuMemFree_v2", (uint64_t), p);
	if (stream)
		CALL("cuStreamDestroy_v2", (void *), stream);
	return r;
}

bool nccl_command(int argc, char **argv)
{
	if (!IS("nccl"))
		return false;
	int r = run(ARG(1, 1));
	answer_begin();
	answer_result(r);
	answer_number("is_installed", nccl.handle != NULL);
	answer_end();
	return true;
}
