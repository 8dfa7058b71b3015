/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDART_BLAS_H
#define SIMCUDART_BLAS_H

/*
 * blas: shared parts of libcublas and libcublasLt: a matmul is a launch of a kernel with
 * a name like that of a real one. Nothing is computed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { /* cublasStatus_t */
	SUCCESS = 0,
	NOT_INITIALIZED = 1,
	ALLOC_FAILED = 3,
	INVALID_VALUE = 7,
	EXECUTION_FAILED = 13,
	NOT_SUPPORTED = 15,
};

/* cudaDataType, as far as matmuls use it */
enum { REAL_32F = 0, REAL_64F = 1, REAL_16F = 2, COMPLEX_32F = 4, COMPLEX_64F = 5, REAL_16BF = 14 };

struct matmul {
	int type; /* of the operands */
	bool transposed_a, transposed_b;
	int64_t m, n, k, batch;
	int device;
	uint64_t stream;
};

/* Result of cublasCreate; cublasLt uses the same. */
struct cublas {
	int device, math_mode, pointer_mode;
	uint64_t stream;
};

int blas_matmul(const struct matmul *m);
/* Any other kernel, with `blocks` of 128 threads. */
int blas_launch(const char *kernel, int64_t blocks, int device, uint64_t stream);
/* Of the current context; −1: there is none. */
int blas_device(void);

#define EXPORT __attribute__((visibility("default")))

#endif
