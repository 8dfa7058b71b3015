/* SPDX-License-Identifier: Apache-2.0 */

/* The entries about devices: those of OTHER_APIS for their properties and memory, and their pools. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "exports.h"
#include "state.h"

static CUresult device(CUdevice dev)
{
	if (!sim.initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	return dev >= 0 && dev < sim.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult impl_cuDeviceGet(CUdevice *out, int ordinal)
{
	CUresult r = device(ordinal);
	if (r == CUDA_SUCCESS && out)
		*out = ordinal;
	return r;
}

CUresult impl_cuDeviceGetCount(int *out)
{
	if (sim.initialized && out)
		*out = sim.devices;
	return sim.initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult impl_cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS && name && len > 0)
		snprintf(name, (size_t)len, "Simulated GPU %d", dev);
	return r;
}

/* Of CUdevice_attribute: those of a large device of compute capability 9.0 that are not
 * 0, which means "no". Below these: attributes that differ by device. */
static const struct {
	int attribute, value;
} attributes[] = {
	{1, 1024}, {2, 1024}, {3, 1024}, {4, 64},	/* threads of a block, its dimensions */
	{5, INT_MAX}, {6, 65535}, {7, 65535},		/* dimensions of a grid */
	{8, 49152}, {9, 65536}, {10, 32},		/* shared memory, constants, a warp */
	{11, INT_MAX}, {12, 65536}, {13, 1980000},	/* pitch, registers, kHz */
	{14, 512}, {15, 1}, {16, 132},			/* texture alignment, overlap, SMs */
	{19, 1}, {31, 1}, {32, 1}, {36, 2619000},	/* host memory mapped, kernels at a time, ECC */
	{37, 5120}, {38, 50 << 20}, {39, 2048},		/* memory bus, L2 cache, threads of an SM */
	{40, 3}, {41, 1}, {51, 32},			/* copies at a time, unified addresses */
	{75, 9}, {78, 1}, {79, 1}, {80, 1},		/* capability, priorities, L1 caches */
	{81, 233472}, {82, 65536}, {83, 1}, {87, 2},	/* of an SM; managed memory */
	{89, 1}, {90, 1}, {91, 1}, {95, 1}, {96, 1},	/* concurrent, cooperative */
	{97, 232448}, {99, 1}, {102, 1}, {103, 1},	/* opt-in shared memory, virtual memory */
	{106, 32}, {108, 32 << 20}, {109, 128 << 20},	/* blocks of an SM, windows of the cache */
	{111, 1024}, {113, 1}, {115, 1}, {119, 1}, {120, 1}, {125, 1}, /* pools, clusters, IPC of events */
};
enum { ATTRIBUTE_PCI_BUS = 33 };

CUresult impl_cuDeviceGetAttribute(int *out, int attribute, CUdevice dev)
{
	CUresult r = device(dev);
	if (r != CUDA_SUCCESS || !out)
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	*out = attribute == ATTRIBUTE_PCI_BUS ? dev + 1 : 0;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++)
		if (attributes[i].attribute == attribute)
			*out = attributes[i].value;
	return CUDA_SUCCESS;
}

CUresult impl_cuDeviceGetUuid(unsigned char *uuid, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS) {
		memcpy(uuid, "simulated-gpu-\0\0", 16);
		uuid[15] = (unsigned char)dev;
	}
	return r;
}

CUresult impl_cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice dev)
{
	return impl_cuDeviceGetUuid(uuid, dev);
}

CUresult impl_cuDeviceGetPCIBusId(char *out, int len, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS && out && len > 0)
		snprintf(out, (size_t)len, "0000:%02X:00.0", dev + 1);
	return r;
}

CUresult impl_cuDeviceTotalMem_v2(size_t *out, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS && out)
		*out = sim.capacity;
	return r;
}

static uint32_t low32(uint64_t n)
{
	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

CUresult impl_cuDeviceTotalMem(uint32_t *out, CUdevice dev)
{
	CUresult r = device(dev);
	if (r == CUDA_SUCCESS && out)
		*out = low32(sim.capacity);
	return r;
}

CUresult impl_cuDeviceCanAccessPeer(int *out, CUdevice dev, CUdevice peer)
{
	CUresult r = device(dev) ? device(dev) : device(peer);
	if (r == CUDA_SUCCESS && out)
		*out = dev != peer;
	return out ? r : CUDA_ERROR_INVALID_VALUE;
}

/* The getters of CUDA 13, of pools in memory of devices. */
static CUresult pool_at(CUmemoryPool *out, const CUmemLocation *at, bool is_default)
{
	int dev;
	if (!out || !at)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = location_device(*at, &dev);
	if (r != CUDA_SUCCESS)
		return r;
	return dev < 0 ? CUDA_ERROR_NOT_SUPPORTED : pool_of(out, dev, is_default);
}

CUresult impl_cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *at, unsigned type)
{
	(void)type;
	return RUN(cuMemGetDefaultMemPool, pool_at(out, at, true));
}

CUresult impl_cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *at, unsigned type)
{
	(void)type;
	return RUN(cuMemGetMemPool, pool_at(out, at, false));
}
