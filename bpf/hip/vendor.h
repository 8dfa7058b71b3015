/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_VENDOR_H
#define GPU_GADGETS_HIP_VENDOR_H

/* vendor: names and properties of AMD's HIP runtime, as cuda/vendor.h has those of CUDA. */

#define DRIVER_LIBRARY libamdhip64
#define API_DEVICE_ANSWER API_hipGetDevice

/* Every thread starts on device 0, and needs no context. */
#define DEVICE_AT_START 0

/* A call for 0 bytes answers a null pointer; memory is held until its addresses are freed. */
#define EMPTY_IS_NULL 1
#define ADDRESSES_HOLD_MEMORY 1

#define TORCH_GPU_LIBRARY "libc10_hip"

#define OWNER_APIS(X) NCCL_APIS(X) RCCL_APIS(X)
#define OWNER_LIBRARIES(POINT, ...) POINT("librccl", __VA_ARGS__)

#endif
