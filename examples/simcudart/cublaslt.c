/* SPDX-License-Identifier: Apache-2.0 */

/* libcublasLt.so.12: matmuls with descriptions of their operands. */
#include <stdlib.h>
#include <string.h>

#include "blas.h"

/* Stored arguments of a description; the creators allocate it. */
struct layout {
	int type;
	uint64_t rows, columns;
	int batch;
};

struct description {
	int transposed_a, transposed_b;
};

static int give(void **out, size_t bytes)
{
	*out = calloc(1, bytes);
	return *out ? SUCCESS : ALLOC_FAILED;
}

static int take(void *p)
{
	free(p);
	return SUCCESS;
}

EXPORT int cublasLtMatrixLayoutCreate(struct layout **out, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
	int r = give((void **)out, sizeof(**out));
	(void)ld;
	if (r == SUCCESS)
		**out = (struct layout){type, rows, columns, 1};
	return r;
}

EXPORT int cublasLtMatrixLayoutDestroy(void *layout)
{
	return take(layout);
}

enum { LAYOUT_BATCH_COUNT = 5, DESCRIPTION_TRANSA = 3, DESCRIPTION_TRANSB = 4 };

EXPORT int cublasLtMatrixLayoutSetAttribute(struct layout *layout, int attribute, const void *value, size_t bytes)
{
	if (attribute == LAYOUT_BATCH_COUNT && bytes == sizeof(layout->batch))
		memcpy(&layout->batch, value, bytes);
	return SUCCESS;
}

EXPORT int cublasLtMatmulDescCreate(struct description **out, int compute, int scale)
{
	(void)compute, (void)scale;
	return give((void **)out, sizeof(**out));
}

EXPORT int cublasLtMatmulDescDestroy(void *description)
{
	return take(description);
}

EXPORT int cublasLtMatmulDescSetAttribute(struct description *d, int attribute, const void *value, size_t bytes)
{
	if (attribute == DESCRIPTION_TRANSA && bytes == sizeof(d->transposed_a))
		memcpy(&d->transposed_a, value, bytes);
	if (attribute == DESCRIPTION_TRANSB && bytes == sizeof(d->transposed_b))
		memcpy(&d->transposed_b, value, bytes);
	return SUCCESS;
}

EXPORT int cublasLtMatmulPreferenceCreate(void **out)
{
	return give(out, 64);
}

EXPORT int cublasLtMatmulPreferenceDestroy(void *preference)
{
	return take(preference);
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes)
{
	(void)preference, (void)attribute, (void)value, (void)bytes;
	return SUCCESS;
}

/* cublasLtMatmulHeuristicResult_t: the algorithm is not used later. */
struct heuristic {
	uint64_t algorithm[8];
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, void *a, void *b, void *c,
					  void *d, void *preference, int wanted, struct heuristic *out,
					  int *found)
{
	(void)handle, (void)description, (void)a, (void)b, (void)c, (void)d, (void)preference;
	if (wanted < 1)
		return INVALID_VALUE;
	*out = (struct heuristic){.waves = 1};
	*found = 1;
	return SUCCESS;
}

EXPORT int cublasLtMatmul(const struct cublas *handle, const struct description *description, const void *alpha,
			  const void *a, const struct layout *layout_a, const void *b,
			  const struct layout *layout_b, const void *beta, const void *c,
			  const struct layout *layout_c, void *d, const struct layout *layout_d,
			  const void *algorithm, void *workspace, size_t bytes, uint64_t stream)
{
	(void)alpha, (void)a, (void)b, (void)layout_b, (void)beta, (void)c, (void)layout_c;
	(void)d, (void)algorithm, (void)workspace, (void)bytes;
	return blas_matmul(&(struct matmul){
		.type = layout_a->type, .transposed_a = description->transposed_a,
		.transposed_b = description->transposed_b, .m = (int64_t)layout_d->rows,
		.n = (int64_t)layout_d->columns,
		.k = (int64_t)(description->transposed_a ? layout_a->rows : layout_a->columns), .batch = layout_d->batch, .device = handle->device, .stream = stream});
}
