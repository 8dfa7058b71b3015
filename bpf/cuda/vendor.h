/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CUDA_VENDOR_H
#define GPU_GADGETS_CUDA_VENDOR_H

/* vendor: names and properties of NVIDIA's CUDA driver. Those of AMD's HIP: hip/vendor.h. */

/* The file up to ".so", as in the sections of unmodified ig, which finds it by this name. */
#define DRIVER_LIBRARY libcuda

/* The function that answers FACT_DEVICE (call/demand.h): the device that the thread uses. */
#define API_DEVICE_ANSWER API_cuCtxGetDevice

/* The device of a thread that has called nothing yet; -1: it has none, but needs a context. */
#define DEVICE_AT_START -1

/* 1: a call for 0 bytes succeeds, and answers a null pointer. */
#define EMPTY_IS_NULL 0

/* 1: memory that was mapped is held by its address range until MEMORY_ADDRESS_FREE. */
#define ADDRESSES_HOLD_MEMORY 0

/* PyTorch's library for these GPUs. */
#define TORCH_GPU_LIBRARY "libc10_cuda"

/* Reports when the GPU ran each kernel, with CUPTI: launch/device_times.h. */
#define DEVICE_TIMES_LIBRARY "libparcagpucupti"

/* Who exports NCCL's functions, and which: NCCL is a library of its own, or part of PyTorch's. */
#define OWNER_APIS(X) NCCL_APIS(X)
#define OWNER_LIBRARIES(POINT, ...) \
	POINT("libnccl", __VA_ARGS__) POINT("libtorch_cuda", __VA_ARGS__)

#endif
