/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of devices and of the host, copies and sets. */
#include "runtime.h"

ENTRY(cudaMalloc, (void **out, size_t bytes), driver.cuMemAlloc((uint64_t *)out, bytes))
ENTRY(cudaMallocManaged, (void **out, size_t bytes, unsigned flags),
      driver.cuMemAllocManaged((uint64_t *)out, bytes, flags))
ENTRY(cudaFree, (void *p), p ? driver.cuMemFree((uint64_t)p) : cudaSuccess)
ENTRY(cudaHostAlloc, (void **out, size_t bytes, unsigned flags), driver.cuMemHostAlloc(out, bytes, flags))
ENTRY(cudaMallocHost, (void **out, size_t bytes), driver.cuMemHostAlloc(out, bytes, 0))
ENTRY(cudaFreeHost, (void *p), p ? driver.cuMemFreeHost(p) : cudaSuccess)
ENTRY(cudaHostRegister, (void *p, size_t bytes, unsigned flags), driver.cuMemHostRegister(p, bytes, flags))
ENTRY(cudaHostUnregister, (void *p), driver.cuMemHostUnregister(p))
ENTRY(cudaHostGetDevicePointer, (void **out, void *p, unsigned flags),
      driver.cuMemHostGetDevicePointer((uint64_t *)out, p, flags))
ENTRY(cudaMemGetInfo, (size_t *left, size_t *total), driver.cuMemGetInfo(left, total))

ENTRY(cudaMallocAsync, (void **out, size_t bytes, cudaStream_t s), driver.cuMemAllocAsync((uint64_t *)out, bytes, s))
ENTRY(cudaFreeAsync, (void *p, cudaStream_t s), p ? driver.cuMemFreeAsync((uint64_t)p, s) : cudaSuccess)
DRIVER_ENTRY(cudaMemPoolGetAttribute, (cudaMemPool_t pool, int attribute, void *out),
	     driver.cuMemPoolGetAttribute(pool, attribute, out))
DRIVER_ENTRY(cudaMemPoolSetAttribute, (cudaMemPool_t pool, int attribute, void *value),
	     driver.cuMemPoolSetAttribute(pool, attribute, value))
DRIVER_ENTRY(cudaMemPoolSetAccess, (cudaMemPool_t pool, const void *list, size_t count),
	     driver.cuMemPoolSetAccess(pool, list, count))
DRIVER_ENTRY(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), driver.cuMemPoolTrimTo(pool, keep))

ENTRY(cudaIpcGetMemHandle, (ipc_handle *out, void *p), driver.cuIpcGetMemHandle(out, (uint64_t)p))
ENTRY(cudaIpcOpenMemHandle, (void **out, ipc_handle handle, unsigned flags),
      driver.cuIpcOpenMemHandle((uint64_t *)out, handle, flags))
ENTRY(cudaIpcCloseMemHandle, (void *p), driver.cuIpcCloseMemHandle((uint64_t)p))

/* ----------------------------------------------------------------- properties of pointers */

struct cudaPointerAttributes {
	int type, device; /* cudaMemoryType: unregistered 0, host 1, device 2, managed 3 */
	void *on_device, *on_host;
};

static cudaError_t pointer(struct cudaPointerAttributes *out, const void *p)
{
	/* context, memory type, device's and host's pointer, managed, ordinal */
	static const int wanted[] = {1, 2, 3, 4, 8, 9};
	uint64_t owner = 0, on_device = 0, on_host = 0;
	unsigned type = 0, managed = 0;
	int ordinal = -2;
	void *values[] = {&owner, &type, &on_device, &on_host, &managed, &ordinal};
	if (!out)
		return cudaErrorInvalidValue;
	cudaError_t r = driver.cuPointerGetAttributes(sizeof(wanted) / sizeof(*wanted), wanted, values, (uint64_t)p);
	if (r == cudaSuccess)
		*out = (struct cudaPointerAttributes){
			managed ? 3 : (int)type, ordinal, (void *)on_device,
			type ? (void *)on_host : (void *)p};
	return r;
}

ENTRY(cudaPointerGetAttributes, (struct cudaPointerAttributes *out, const void *p), pointer(out, p))

/* ------------------------------------------------------------------- copies and sets */

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS }; /* cudaMemcpyKind */

static cudaError_t copy(uint64_t to, uint64_t from, size_t n, int kind)
{
	switch (n ? kind : -1) {
	case -1:
		return cudaSuccess;
	case HOST_TO_DEVICE:
		return driver.cuMemcpyHtoD(to, from, n);
	case DEVICE_TO_HOST:
		return driver.cuMemcpyDtoH(to, from, n);
	case DEVICE_TO_DEVICE:
		return driver.cuMemcpyDtoD(to, from, n);
	case HOST_TO_HOST:
	case BY_ADDRESS:
		return driver.cuMemcpy(to, from, n);
	}
	return 21; /* cudaErrorInvalidMemcpyDirection */
}

static cudaError_t copy_async(uint64_t to, uint64_t from, size_t n, int kind, cudaStream_t s)
{
	int capturing; /* the real one does this, too */
	driver.cuStreamIsCapturing(s, &capturing);
	switch (n ? kind : -1) {
	case -1:
		return cudaSuccess;
	case HOST_TO_DEVICE:
		return driver.cuMemcpyHtoDAsync(to, from, n, s);
	case DEVICE_TO_HOST:
		return driver.cuMemcpyDtoHAsync(to, from, n, s);
	case DEVICE_TO_DEVICE:
		return driver.cuMemcpyDtoDAsync(to, from, n, s);
	case HOST_TO_HOST:
	case BY_ADDRESS:
		return driver.cuMemcpyAsync(to, from, n, s);
	}
	return 21; /* cudaErrorInvalidMemcpyDirection */
}

ENTRY(cudaMemcpy, (void *to, const void *from, size_t n, int kind), copy((uint64_t)to, (uint64_t)from, n, kind))
ENTRY(cudaMemcpyAsync, (void *to, const void *from, size_t n, int kind, cudaStream_t s),
      copy_async((uint64_t)to, (uint64_t)from, n, kind, s))

/* Both devices' contexts must exist; the current one stays. */
static cudaError_t copy_peer(uint64_t to, int to_device, uint64_t from, int from_device, size_t n,
			     cudaStream_t s)
{
	int device = current_device();
	const int both[] = {to_device, from_device};
	for (int i = 0; i < 2; i++) {
		if (both[i] < 0 || both[i] >= device_count)
			return cudaErrorInvalidDevice;
		cudaError_t r = primary[both[i]] ? cudaSuccess : use_device(both[i]);
		if (r != cudaSuccess)
			return r;
	}
	if (thread.device != device)
		use_device(device);
	return driver.cuMemcpyPeerAsync(to, primary[to_device], from, primary[from_device], n, s);
}

ENTRY(cudaMemcpyPeerAsync, (void *to, int to_device, const void *from, int from_device, size_t n, cudaStream_t s),
      copy_peer((uint64_t)to, to_device, (uint64_t)from, from_device, n, s))

static cudaError_t set(uint64_t p, int value, size_t n)
{
	return n ? driver.cuMemsetD8(p, (unsigned char)value, n) : cudaSuccess;
}

static cudaError_t set_async(uint64_t p, int value, size_t n, cudaStream_t s)
{
	return n ? driver.cuMemsetD8Async(p, (unsigned char)value, n, s) : cudaSuccess;
}

ENTRY(cudaMemset, (void *p, int value, size_t n), set((uint64_t)p, value, n))
ENTRY(cudaMemsetAsync, (void *p, int value, size_t n, cudaStream_t s), set_async((uint64_t)p, value, n, s))
