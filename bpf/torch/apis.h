/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_TORCH_APIS_H
#define GPU_GADGETS_TORCH_APIS_H

/*
 * apis: the functions of PyTorch's libc10 to which its allocators report every block that
 * they allocate or free, whether or not a profiler is active (c10/core/Allocator.h). The
 * mangled names differ by version: totals were added in 1.9 and were signed before 2.0.
 * Plain C macros only: the file is included by eBPF programs and by user space.
 */
enum torch_op {
	TORCH_OP_NONE = 0,
	TORCH_BLOCK,	      /* allocated (size > 0) or freed (size < 0) */
	TORCH_BLOCK_NO_TOTAL, /* the same without the pool's totals */
	TORCH_OOM,	      /* the allocator is about to raise OutOfMemoryError */
};

/* X(symbol, id, op) */
#define TORCH_APIS(X)                                                                \
	X(_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE, 1, TORCH_BLOCK)     \
	X(_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE, 2, TORCH_BLOCK)     \
	X(_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE, 3, TORCH_BLOCK_NO_TOTAL) \
	X(_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE, 4, TORCH_OOM)         \
	X(_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE, 5, TORCH_OOM)

#endif
