// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
//
// hip_kernel: which call stack launches which kernels on AMD's GPUs, copies what and waits.
//
// The programs of cuda_kernel, with the table of HIP (bpf/hip/launch_apis.h) instead of that
// of the CUDA driver.

#define VENDOR hip
#include "../cuda_kernel/program.bpf.c"
