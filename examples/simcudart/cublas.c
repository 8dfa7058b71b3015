/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libcublas.so.12, as far as PyTorch uses it: handles, products of matrices and vectors.
 * Factorizations and triangular systems return that they are not supported.
 */
#include <stdlib.h>

#include "blas.h"

EXPORT int cublasCreate_v2(struct cublas **out)
{
	int device = blas_device();
	if (device < 0)
		return NOT_INITIALIZED;
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return ALLOC_FAILED;
	(*out)->device = device;
	return SUCCESS;
}

EXPORT int cublasDestroy_v2(struct cublas *h)
{
	free(h);
	return SUCCESS;
}

EXPORT int cublasSetWorkspace_v2(struct cublas *h, void *workspace, size_t bytes)
{
	(void)workspace, (void)bytes;
	return h ? SUCCESS : NOT_INITIALIZED;
}

EXPORT int cublasSetStream_v2(struct cublas *h, uint64_t stream)
{
	h->stream = stream;
	return SUCCESS;
}

EXPORT int cublasSetMathMode(struct cublas *h, int mode)
{
	h->math_mode = mode;
	return SUCCESS;
}

EXPORT int cublasGetMathMode(struct cublas *h, int *mode)
{
	*mode = h->math_mode;
	return SUCCESS;
}

EXPORT int cublasSetPointerMode_v2(struct cublas *h, int mode)
{
	h->pointer_mode = mode;
	return SUCCESS;
}

EXPORT int cublasGetPointerMode_v2(struct cublas *h, int *mode)
{
	*mode = h->pointer_mode;
	return SUCCESS;
}

/* The size parameters come first; the rest is ignored. */
static int gemm(struct cublas *h, int type, int a, int b, int64_t m, int64_t n, int64_t k, int64_t batch)
{
	return blas_matmul(&(struct matmul){.type = type, .transposed_a = a, .transposed_b = b,
					    .m = m, .n = n, .k = k, .batch = batch, .device = h->device, .stream = h->stream});
}

#define GEMM(symbol, type)                                                                   \
	EXPORT int symbol(struct cublas *h, int a, int b, int m, int n, int k)               \
	{                                                                                    \
		return gemm(h, type, a, b, m, n, k, 1);                                      \
	}
GEMM(cublasSgemm_v2, REAL_32F)
GEMM(cublasDgemm_v2, REAL_64F)
GEMM(cublasCgemm_v2, COMPLEX_32F)
GEMM(cublasZgemm_v2, COMPLEX_64F)

#define GEMM_EX(symbol)                                                                      \
	EXPORT int symbol(struct cublas *h, int a, int b, int m, int n, int k, const void *alpha, \
			  const void *in, int type)                                          \
	{                                                                                    \
		(void)alpha, (void)in;                                              \
		return gemm(h, type, a, b, m, n, k, 1);                                      \
	}
GEMM_EX(cublasGemmEx)
GEMM_EX(cublasSgemmEx)

#define GEMM_STRIDED(symbol, kind)                                                           \
	EXPORT int symbol(struct cublas *h, int a, int b, int m, int n, int k, const void *alpha, \
			  const void *in_a, int lda, long long stride_a, const void *in_b,   \
			  int ldb, long long stride_b, const void *beta, void *out, int ldc, \
			  long long stride_c, int batch)                                     \
	{                                                                                    \
		(void)alpha, (void)in_a, (void)lda, (void)stride_a, (void)in_b;     \
		(void)ldb, (void)stride_b, (void)beta, (void)out, (void)ldc, (void)stride_c; \
		return gemm(h, kind, a, b, m, n, k, batch);                                     \
	}
GEMM_STRIDED(cublasSgemmStridedBatched, REAL_32F)
GEMM_STRIDED(cublasDgemmStridedBatched, REAL_64F)
GEMM_STRIDED(cublasCgemmStridedBatched, COMPLEX_32F)
GEMM_STRIDED(cublasZgemmStridedBatched, COMPLEX_64F)

EXPORT int cublasGemmStridedBatchedEx(struct cublas *h, int a, int b, int m, int n, int k,
				      const void *alpha, const void *in_a, int type_a, int lda,
				      long long stride_a, const void *in_b, int type_b, int ldb,
				      long long stride_b, const void *beta, void *out, int type_c,
				      int ldc, long long stride_c, int batch)
{
	(void)alpha, (void)in_a, (void)lda, (void)stride_a, (void)in_b, (void)type_b, (void)ldb;
	(void)stride_b, (void)beta, (void)out, (void)type_c, (void)ldc, (void)stride_c;
	return gemm(h, type_a, a, b, m, n, k, batch);
}

#define GEMV(symbol)                                                                         \
	EXPORT int symbol(struct cublas *h, int transposed, int m, int n)                    \
	{                                                                                    \
		return blas_launch(transposed ? "gemv2T_kernel_val" : "gemvNSP_kernel",      \
				   (transposed ? n : m) / 128 + 1, h->device, h->stream);               \
	}
GEMV(cublasSgemv_v2)
GEMV(cublasDgemv_v2)
GEMV(cublasCgemv_v2)
GEMV(cublasZgemv_v2)

#define DOT(symbol)                                                                          \
	EXPORT int symbol(struct cublas *h, int n)                                           \
	{                                                                                    \
		int r = blas_launch("dot_kernel", n / 128 + 1, h->device, h->stream);                   \
		return r ? r : blas_launch("reduce_1Block_kernel", 1, h->device, h->stream);            \
	}
DOT(cublasSdot_v2)
DOT(cublasDdot_v2)
DOT(cublasCdotc_v2)
DOT(cublasCdotu_v2)
DOT(cublasZdotc_v2)
DOT(cublasZdotu_v2)
DOT(cublasDotEx)

#define NONE(symbol)                                                                         \
	EXPORT int symbol(void)                                                              \
	{                                                                                    \
		return NOT_SUPPORTED;                                                        \
	}
#define NONE_OF_EACH_TYPE(symbol) NONE(cublasS##symbol) NONE(cublasD##symbol) NONE(cublasC##symbol) NONE(cublasZ##symbol)
NONE_OF_EACH_TYPE(gelsBatched)
NONE_OF_EACH_TYPE(geqrfBatched)
NONE_OF_EACH_TYPE(getrfBatched)
NONE_OF_EACH_TYPE(getrsBatched)
NONE_OF_EACH_TYPE(trsmBatched)
NONE_OF_EACH_TYPE(trsm_v2)
