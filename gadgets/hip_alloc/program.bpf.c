// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
//
// hip_alloc: which call stack holds, takes and frees the memory of AMD's GPUs.
//
// The programs of cuda_alloc, with the table of HIP (bpf/hip/apis.h) instead of that of the
// CUDA driver.

#define VENDOR hip
#include "../cuda_alloc/program.bpf.c"
