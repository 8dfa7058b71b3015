/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libc10.so: the functions that PyTorch's allocators report to, under their real
 * mangled names. With -DTORCH_1 those of 1.9 to 1.13, with -DTORCH_1_8 older ones.
 * What the real ones do without a profiler is to look a thread-local up; here they do
 * nothing but save a register first, as the real ones do, which decides what a probe on
 * them costs.
 */
#include <stddef.h>
#include <stdint.h>

#include "c10.h"

#define EXPORTED __attribute__((visibility("default"), noinline))

#if defined(__x86_64__)
#define SAVED "rbx"
#elif defined(__aarch64__)
#define SAVED "x19"
#endif

EXPORTED void report_block(REPORT_BLOCK_PARAMETERS) { __asm__ volatile("" ::: SAVED, "memory"); }
#ifndef TORCH_1_8
EXPORTED void report_oom(REPORT_OOM_PARAMETERS) { __asm__ volatile("" ::: SAVED, "memory"); }
#endif
