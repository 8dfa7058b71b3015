/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMTORCH_C10_H
#define SIMTORCH_C10_H

/*
 * c10: the functions of libc10.so that libc10_cuda.so calls, as in c10/core/Allocator.h of
 * PyTorch 2 (sizes are size_t), 1.9 to 1.13 (int64_t), and 1.8 (no totals).
 */
#include <stddef.h>
#include <stdint.h>

struct c10_device {
	int8_t type, index;
};
#ifdef VENDOR_HIP
#define C10_GPU 6
#else
#define C10_GPU 1
#endif

#if defined(TORCH_1_8)
#define REPORT_BLOCK_PARAMETERS void *pointer, int64_t bytes, struct c10_device device
#define REPORT_BLOCK_NAME "_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE"
#define REPORT_BLOCK(p, n, allocated, reserved, d) report_block(p, n, d)
#elif defined(TORCH_1)
#define REPORT_BLOCK_PARAMETERS \
	void *pointer, int64_t bytes, int64_t allocated, int64_t reserved, struct c10_device device
#define REPORT_BLOCK_NAME "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"
#define REPORT_BLOCK(p, n, allocated, reserved, d) report_block(p, n, allocated, reserved, d)
#else
#define REPORT_BLOCK_PARAMETERS \
	void *pointer, int64_t bytes, size_t allocated, size_t reserved, struct c10_device device
#define REPORT_BLOCK_NAME "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define REPORT_BLOCK(p, n, allocated, reserved, d) report_block(p, n, allocated, reserved, d)
#endif

#if defined(TORCH_1_8)
#define REPORT_OOM(n, allocated, reserved, d) /* it was not reported */
#else
#define REPORT_OOM(n, allocated, reserved, d) report_oom(n, allocated, reserved, d)
#endif
#if defined(TORCH_1) || defined(TORCH_1_8)
#define REPORT_OOM_PARAMETERS \
	int64_t bytes, int64_t allocated, int64_t reserved, struct c10_device device
#define REPORT_OOM_NAME "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE"
#else
#define REPORT_OOM_PARAMETERS \
	int64_t bytes, size_t allocated, size_t reserved, struct c10_device device
#define REPORT_OOM_NAME "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"
#endif

void report_block(REPORT_BLOCK_PARAMETERS) __asm__(REPORT_BLOCK_NAME);
void report_oom(REPORT_OOM_PARAMETERS) __asm__(REPORT_OOM_NAME);

#endif
