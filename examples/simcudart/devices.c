/* SPDX-License-Identifier: Apache-2.0 */

/* Devices: their number, their properties, the thread's current one. */
#include <string.h>

#include "runtime.h"

DRIVER_ENTRY(cudaGetDeviceCount, (int *out), out ? (*out = device_count, cudaSuccess) : cudaErrorInvalidValue)
DRIVER_ENTRY(cudaDriverGetVersion, (int *out), driver.cuDriverGetVersion(out))

EXPORT cudaError_t cudaRuntimeGetVersion(int *out)
{
	if (!out)
		return last(cudaErrorInvalidValue);
	*out = 12040;
	return cudaSuccess;
}

/* A thread without a context has a device, and no context is made for the question. */
static cudaError_t get_device(int *out)
{
	uint64_t current;
	cudaError_t r = driver.cuCtxGetDevice(out);
	if (r != cudaErrorInvalidContext)
		return r;
	driver.cuCtxGetCurrent(&current);
	*out = thread.device;
	return cudaSuccess;
}

DRIVER_ENTRY(cudaGetDevice, (int *out), out ? get_device(out) : cudaErrorInvalidValue)

static cudaError_t set_device(int device)
{
	unsigned flags;
	int active;
	cudaError_t r = driver.cuDevicePrimaryCtxGetState(device, &flags, &active);
	return r ? r : use_device(device);
}

DRIVER_ENTRY(cudaSetDevice, (int device), set_device(device))
DRIVER_ENTRY(cudaDeviceGetAttribute, (int *out, int attribute, int device),
	     driver.cuDeviceGetAttribute(out, attribute, device))
DRIVER_ENTRY(cudaDeviceGetPCIBusId, (char *out, int size, int device), driver.cuDeviceGetPCIBusId(out, size, device))
DRIVER_ENTRY(cudaDeviceCanAccessPeer, (int *out, int device, int peer),
	     driver.cuDeviceCanAccessPeer(out, device, peer))
DRIVER_ENTRY(cudaDeviceGetDefaultMemPool, (cudaMemPool_t *out, int device),
	     driver.cuDeviceGetDefaultMemPool(out, device))
ENTRY(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
      driver.cuCtxGetStreamPriorityRange(least, greatest))
ENTRY(cudaDeviceSynchronize, (void), driver.cuCtxSynchronize())
ENTRY(cudaProfilerStart, (void), driver.cuProfilerStart())
ENTRY(cudaProfilerStop, (void), driver.cuProfilerStop())

/* The peer's context must exist; the current one stays. */
static cudaError_t enable_peer(int peer, unsigned flags)
{
	int device = current_device();
	cudaError_t r = cudaSuccess;
	if (peer < 0 || peer >= device_count || peer == device)
		return cudaErrorInvalidDevice;
	if (!primary[peer] && (r = use_device(peer)) == cudaSuccess)
		r = use_device(device);
	return r ? r : driver.cuCtxEnablePeerAccess(primary[peer], flags);
}

ENTRY(cudaDeviceEnablePeerAccess, (int peer, unsigned flags), enable_peer(peer, flags))

/* As the reference of CUDA 12 has it, with the fields that it fills by name. */
struct cudaDeviceProp {
	char name[256];
	char uuid[16], luid[8];
	unsigned luid_nodes;
	size_t total_memory, shared_per_block;
	int registers_per_block, warp;
	size_t pitch;
	int threads_per_block, block_dimensions[3], grid_dimensions[3], clock_khz;
	size_t constants;
	int major, minor;
	size_t texture_alignment, texture_pitch_alignment;
	int overlap, processors, timeout, integrated, maps_host_memory, compute_mode;
	int textures_and_surfaces[40];
	size_t surface_alignment;
	int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, copy_engines, unified_addressing;
	int memory_clock_khz, memory_bus_bits, l2_cache, l2_persisting;
	int threads_per_processor, priorities, global_l1, local_l1;
	size_t shared_per_processor;
	int registers_per_processor, managed, multi_gpu_board, board, host_atomics, single_to_double;
	int pageable, concurrent_managed, preemption, host_pointer, cooperative, cooperative_multi;
	size_t shared_optin;
	int host_page_tables, direct_managed, blocks_per_processor, window;
	size_t shared_reserved;
	int host_register, sparse_arrays, host_register_readonly, semaphores, pools, rdma;
	unsigned rdma_flush;
	int rdma_order;
	unsigned pool_handles;
	int deferred_arrays, ipc_events, clusters, unified_functions, reserved[63];
};
_Static_assert(sizeof(struct cudaDeviceProp) == 1032, "as the reference has it");
_Static_assert(offsetof(struct cudaDeviceProp, processors) == 388, "as the reference has it");

#define FIELD(attribute, field) {attribute, offsetof(struct cudaDeviceProp, field), sizeof(((struct cudaDeviceProp *)0)->field)}
static const struct {
	int attribute;
	size_t at, bytes;
} fields[] = {
	FIELD(8, shared_per_block), FIELD(12, registers_per_block), FIELD(10, warp), FIELD(11, pitch),
	FIELD(1, threads_per_block), FIELD(2, block_dimensions[0]), FIELD(3, block_dimensions[1]),
	FIELD(4, block_dimensions[2]), FIELD(5, grid_dimensions[0]), FIELD(6, grid_dimensions[1]),
	FIELD(7, grid_dimensions[2]), FIELD(13, clock_khz), FIELD(9, constants), FIELD(75, major),
	FIELD(76, minor), FIELD(14, texture_alignment), FIELD(51, texture_pitch_alignment),
	FIELD(15, overlap), FIELD(16, processors), FIELD(19, maps_host_memory), FIELD(14, surface_alignment),
	FIELD(31, concurrent_kernels), FIELD(32, ecc), FIELD(33, pci_bus), FIELD(40, copy_engines),
	FIELD(41, unified_addressing), FIELD(36, memory_clock_khz), FIELD(37, memory_bus_bits),
	FIELD(38, l2_cache), FIELD(108, l2_persisting), FIELD(39, threads_per_processor),
	FIELD(78, priorities), FIELD(79, global_l1), FIELD(80, local_l1), FIELD(81, shared_per_processor),
	FIELD(82, registers_per_processor), FIELD(83, managed), FIELD(87, single_to_double),
	FIELD(89, concurrent_managed), FIELD(90, preemption), FIELD(91, host_pointer),
	FIELD(95, cooperative), FIELD(96, cooperative_multi), FIELD(97, shared_optin),
	FIELD(106, blocks_per_processor), FIELD(109, window), FIELD(111, shared_reserved),
	FIELD(99, host_register), FIELD(113, host_register_readonly), FIELD(115, pools),
	FIELD(120, clusters), FIELD(125, ipc_events),
};

static cudaError_t properties(struct cudaDeviceProp *out, int device)
{
	if (!out)
		return cudaErrorInvalidValue;
	memset(out, 0, sizeof(*out));
	cudaError_t r = driver.cuDeviceGetName(out->name, sizeof(out->name), device);
	if (r != cudaSuccess)
		return r;
	driver.cuDeviceGetUuid(out->uuid, device);
	driver.cuDeviceTotalMem(&out->total_memory, device);
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		int value = 0;
		driver.cuDeviceGetAttribute(&value, fields[i].attribute, device);
		memcpy((char *)out + fields[i].at, &value, sizeof(value)); /* little endian; not negative */
	}
	return cudaSuccess;
}

DRIVER_ENTRY(cudaGetDeviceProperties_v2, (struct cudaDeviceProp *out, int device), properties(out, device))
