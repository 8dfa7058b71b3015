/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libc10.so: the functions that PyTorch's allocators report to, under their real mangled
 * names. With -DTORCH_1 those of 1.9 to 1.13, with -DTORCH_1_8 older ones. Without a
 * profiler the real ones only read a thread-local; these only save a register first, as
 * the real ones do, which determines the cost of a probe.
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
