/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDART_RUNTIME_H
#define SIMCUDART_RUNTIME_H

/*
 * runtime: shared parts of the simulated CUDA runtime: the driver below, the thread's
 * state, the devices. Names and layouts are those of the CUDA Runtime API reference 12.4,
 * as far as they are used.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int cudaError_t; /* a driver's error has the same number */
enum {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInitializationError = 3,
	cudaErrorMissingConfiguration = 52,
	cudaErrorInsufficientDriver = 35,
	cudaErrorInvalidDeviceFunction = 98,
	cudaErrorNoDevice = 100,
	cudaErrorInvalidDevice = 101,
	cudaErrorInvalidContext = 201,
	cudaErrorNotReady = 600,
	cudaErrorSymbolNotFound = 500,
	cudaErrorNotSupported = 801,
	cudaErrorUnknown = 999,
};

/* Opaque, as in the driver. */
typedef uint64_t cudaStream_t, cudaEvent_t, cudaGraph_t, cudaGraphExec_t, cudaMemPool_t;
typedef struct {
	unsigned x, y, z;
} dim3;
typedef struct {
	char bytes[64];
} ipc_handle;

struct cudaDeviceProp;

/*
 * The driver's functions, with their parameters. They are resolved by cuGetProcAddress,
 * as in the real runtime, which returns the exported entries.
 */
#define DRIVER(X)                                                                            \
	X(cuInit, unsigned)                                                                  \
	X(cuDriverGetVersion, int *)                                                         \
	X(cuDeviceGetCount, int *)                                                           \
	X(cuDeviceGet, int *, int)                                                           \
	X(cuDeviceGetName, char *, int, int)                                                 \
	X(cuDeviceGetUuid, void *, int)                                                      \
	X(cuDeviceTotalMem, size_t *, int)                                                   \
	X(cuDeviceGetAttribute, int *, int, int)                                             \
	X(cuDeviceGetPCIBusId, char *, int, int)                                             \
	X(cuDeviceCanAccessPeer, int *, int, int)                                            \
	X(cuDeviceGetDefaultMemPool, cudaMemPool_t *, int)                                   \
	X(cuDevicePrimaryCtxGetState, int, unsigned *, int *)                                \
	X(cuDevicePrimaryCtxRetain, uint64_t *, int)                                         \
	X(cuDevicePrimaryCtxReset, int)                                                      \
	X(cuCtxGetCurrent, uint64_t *)                                                       \
	X(cuCtxSetCurrent, uint64_t)                                                         \
	X(cuCtxPushCurrent, uint64_t)                                                        \
	X(cuCtxPopCurrent, uint64_t *)                                                       \
	X(cuCtxGetDevice, int *)                                                             \
	X(cuCtxSynchronize, void)                                                            \
	X(cuCtxEnablePeerAccess, uint64_t, unsigned)                                         \
	X(cuCtxGetStreamPriorityRange, int *, int *)                                         \
	X(cuMemAlloc, uint64_t *, size_t)                                                    \
	X(cuMemFree, uint64_t)                                                               \
	X(cuMemAllocManaged, uint64_t *, size_t, unsigned)                                   \
	X(cuMemHostAlloc, void **, size_t, unsigned)                                         \
	X(cuMemFreeHost, void *)                                                             \
	X(cuMemHostRegister, void *, size_t, unsigned)                                       \
	X(cuMemHostUnregister, void *)                                                       \
	X(cuMemHostGetDevicePointer, uint64_t *, void *, unsigned)                           \
	X(cuMemGetInfo, size_t *, size_t *)                                                  \
	X(cuPointerGetAttributes, unsigned, const int *, void **, uint64_t)                  \
	X(cuMemAllocAsync, uint64_t *, size_t, cudaStream_t)                                 \
	X(cuMemFreeAsync, uint64_t, cudaStream_t)                                            \
	X(cuMemPoolGetAttribute, cudaMemPool_t, int, void *)                                 \
	X(cuMemPoolSetAttribute, cudaMemPool_t, int, void *)                                 \
	X(cuMemPoolSetAccess, cudaMemPool_t, const void *, size_t)                           \
	X(cuMemPoolTrimTo, cudaMemPool_t, size_t)                                            \
	X(cuIpcGetMemHandle, void *, uint64_t)                                               \
	X(cuIpcOpenMemHandle, uint64_t *, ipc_handle, unsigned)                              \
	X(cuIpcCloseMemHandle, uint64_t)                                                     \
	X(cuIpcGetEventHandle, void *, cudaEvent_t)                                          \
	X(cuIpcOpenEventHandle, cudaEvent_t *, ipc_handle)                                   \
	X(cuMemcpy, uint64_t, uint64_t, size_t)                                              \
	X(cuMemcpyHtoD, uint64_t, uint64_t, size_t)                                          \
	X(cuMemcpyDtoH, uint64_t, uint64_t, size_t)                                          \
	X(cuMemcpyDtoD, uint64_t, uint64_t, size_t)                                          \
	X(cuMemcpyAsync, uint64_t, uint64_t, size_t, cudaStream_t)                           \
	X(cuMemcpyHtoDAsync, uint64_t, uint64_t, size_t, cudaStream_t)                       \
	X(cuMemcpyDtoHAsync, uint64_t, uint64_t, size_t, cudaStream_t)                       \
	X(cuMemcpyDtoDAsync, uint64_t, uint64_t, size_t, cudaStream_t)                       \
	X(cuMemcpyPeerAsync, uint64_t, uint64_t, uint64_t, uint64_t, size_t, cudaStream_t)   \
	X(cuMemsetD8, uint64_t, unsigned char, size_t)                                       \
	X(cuMemsetD8Async, uint64_t, unsigned char, size_t, cudaStream_t)                    \
	X(cuStreamCreate, cudaStream_t *, unsigned)                                          \
	X(cuStreamCreateWithPriority, cudaStream_t *, unsigned, int)                         \
	X(cuStreamDestroy, cudaStream_t)                                                     \
	X(cuStreamGetPriority, cudaStream_t, int *)                                          \
	X(cuStreamSynchronize, cudaStream_t)                                                 \
	X(cuStreamQuery, cudaStream_t)                                                       \
	X(cuStreamWaitEvent, cudaStream_t, cudaEvent_t, unsigned)                            \
	X(cuStreamBeginCapture, cudaStream_t, int)                                           \
	X(cuStreamEndCapture, cudaStream_t, cudaGraph_t *)                                   \
	X(cuStreamIsCapturing, cudaStream_t, int *)                                          \
	X(cuStreamGetCaptureInfo, cudaStream_t, int *, uint64_t *, cudaGraph_t *, void **, size_t *) \
	X(cuThreadExchangeStreamCaptureMode, int *)                                          \
	X(cuLaunchHostFunc, cudaStream_t, void (*)(void *), void *)                          \
	X(cuEventCreate, cudaEvent_t *, unsigned)                                            \
	X(cuEventDestroy, cudaEvent_t)                                                       \
	X(cuEventRecord, cudaEvent_t, cudaStream_t)                                          \
	X(cuEventQuery, cudaEvent_t)                                                         \
	X(cuEventSynchronize, cudaEvent_t)                                                   \
	X(cuEventElapsedTime, float *, cudaEvent_t, cudaEvent_t)                             \
	X(cuGraphDestroy, cudaGraph_t)                                                       \
	X(cuGraphExecDestroy, cudaGraphExec_t)                                               \
	X(cuGraphGetNodes, cudaGraph_t, uint64_t *, size_t *)                                \
	X(cuGraphInstantiateWithFlags, cudaGraphExec_t *, cudaGraph_t, unsigned long long)   \
	X(cuGraphLaunch, cudaGraphExec_t, cudaStream_t)                                      \
	X(cuGraphDebugDotPrint, cudaGraph_t, const char *, unsigned)                         \
	X(cuLibraryLoadData, uint64_t *, const void *, void *, void *, unsigned, void *, void *, unsigned) \
	X(cuLibraryUnload, uint64_t)                                                         \
	X(cuLibraryGetModule, uint64_t *, uint64_t)                                          \
	X(cuModuleGetFunction, uint64_t *, uint64_t, const char *)                           \
	X(cuFuncGetAttribute, int *, int, uint64_t)                                          \
	X(cuFuncSetAttribute, uint64_t, int, int)                                            \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *, uint64_t, int, size_t, unsigned) \
	X(cuLaunchKernel, uint64_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
	  cudaStream_t, void **, void **)                                                    \
	X(cuLaunchKernelEx, const void *, uint64_t, void **, void **)                        \
	X(cuProfilerStart, void)                                                             \
	X(cuProfilerStop, void)

struct driver {
#define X(symbol, ...) cudaError_t (*symbol)(__VA_ARGS__);
	DRIVER(X)
#undef X
};
extern struct driver driver;

#define MAX_DEVICES 16
extern int device_count;
extern uint64_t primary[MAX_DEVICES]; /* primary contexts, retained by need; else 0 */

struct thread {
	cudaError_t last;
	int device; /* as cudaSetDevice had it, as long as no context is current */
	bool bound; /* it has had a context: the driver reports when it has none any more */
};
extern __thread struct thread thread;

/* The driver is there and initialized. */
cudaError_t ready(void);
/* And the thread has a context: its own, or its device's primary one. */
cudaError_t context(void);
/* The device of the thread's context, from the driver: through the context, as for a
 * launch, or directly. */
int device_of_current(void);
int current_device(void);
cudaError_t use_device(int device);

/* Keeps an error for cudaGetLastError(). */
static inline cudaError_t last(cudaError_t r)
{
	if (r != cudaSuccess)
		thread.last = r;
	return r;
}

/* The kernel of a host stub, on the current context's device. */
cudaError_t kernel_function(const void *host, int device, uint64_t *out);

#define EXPORT __attribute__((visibility("default")))

/* An entry that needs a context, and then is one expression. */
#define ENTRY(symbol, parameters, expression)              \
	EXPORT cudaError_t symbol parameters               \
	{                                                  \
		cudaError_t r_ = context();                \
		if (r_ == cudaSuccess)                     \
			r_ = (expression);                 \
		return last(r_);                           \
	}

/* As above, but only the driver is needed. */
#define DRIVER_ENTRY(symbol, parameters, expression)       \
	EXPORT cudaError_t symbol parameters               \
	{                                                  \
		cudaError_t r_ = ready();                  \
		if (r_ == cudaSuccess)                     \
			r_ = (expression);                 \
		return last(r_);                           \
	}

#endif
