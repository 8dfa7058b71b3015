/* SPDX-License-Identifier: Apache-2.0 */

/* Streams, events and graphs: the driver's, by the driver's handles. */
#include "runtime.h"

ENTRY(cudaStreamCreate, (cudaStream_t *out), driver.cuStreamCreate(out, 0))
ENTRY(cudaStreamCreateWithFlags, (cudaStream_t *out, unsigned flags), driver.cuStreamCreate(out, flags))
ENTRY(cudaStreamCreateWithPriority, (cudaStream_t *out, unsigned flags, int priority),
      driver.cuStreamCreateWithPriority(out, flags, priority))
ENTRY(cudaStreamDestroy, (cudaStream_t s), driver.cuStreamDestroy(s))
ENTRY(cudaStreamGetPriority, (cudaStream_t s, int *out), driver.cuStreamGetPriority(s, out))
ENTRY(cudaStreamSynchronize, (cudaStream_t s), driver.cuStreamSynchronize(s))
ENTRY(cudaStreamQuery, (cudaStream_t s), driver.cuStreamQuery(s))
ENTRY(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), driver.cuStreamWaitEvent(s, e, flags))
ENTRY(cudaLaunchHostFunc, (cudaStream_t s, void (*function)(void *), void *arg),
      driver.cuLaunchHostFunc(s, function, arg))

ENTRY(cudaEventCreate, (cudaEvent_t *out), driver.cuEventCreate(out, 0))
ENTRY(cudaEventCreateWithFlags, (cudaEvent_t *out, unsigned flags), driver.cuEventCreate(out, flags))
ENTRY(cudaEventDestroy, (cudaEvent_t e), driver.cuEventDestroy(e))
ENTRY(cudaEventRecord, (cudaEvent_t e, cudaStream_t s), driver.cuEventRecord(e, s))
ENTRY(cudaEventQuery, (cudaEvent_t e), driver.cuEventQuery(e))
ENTRY(cudaEventSynchronize, (cudaEvent_t e), driver.cuEventSynchronize(e))
ENTRY(cudaEventElapsedTime, (float *out, cudaEvent_t from, cudaEvent_t to), driver.cuEventElapsedTime(out, from, to))
ENTRY(cudaIpcGetEventHandle, (ipc_handle *out, cudaEvent_t e), driver.cuIpcGetEventHandle(out, e))
ENTRY(cudaIpcOpenEventHandle, (cudaEvent_t *out, ipc_handle handle), driver.cuIpcOpenEventHandle(out, handle))

ENTRY(cudaStreamBeginCapture, (cudaStream_t s, int mode), driver.cuStreamBeginCapture(s, mode))
ENTRY(cudaStreamEndCapture, (cudaStream_t s, cudaGraph_t *out), driver.cuStreamEndCapture(s, out))

/* The default stream cannot be captured: the driver is not called. */
static cudaError_t is_capturing(cudaStream_t s, int *out)
{
	if (s || !out)
		return out ? driver.cuStreamIsCapturing(s, out) : cudaErrorInvalidValue;
	*out = 0;
	return cudaSuccess;
}

ENTRY(cudaStreamIsCapturing, (cudaStream_t s, int *out), is_capturing(s, out))
ENTRY(cudaStreamGetCaptureInfo_v2,
      (cudaStream_t s, int *status, uint64_t *id, cudaGraph_t *graph, void **after, size_t *count),
      driver.cuStreamGetCaptureInfo(s, status, id, graph, after, count))
DRIVER_ENTRY(cudaThreadExchangeStreamCaptureMode, (int *mode), driver.cuThreadExchangeStreamCaptureMode(mode))

ENTRY(cudaGraphInstantiate, (cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags),
      driver.cuGraphInstantiateWithFlags(out, graph, flags))
ENTRY(cudaGraphInstantiateWithFlags, (cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags),
      driver.cuGraphInstantiateWithFlags(out, graph, flags))
ENTRY(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t s), driver.cuGraphLaunch(exec, s))
DRIVER_ENTRY(cudaGraphDestroy, (cudaGraph_t graph), driver.cuGraphDestroy(graph))
DRIVER_ENTRY(cudaGraphExecDestroy, (cudaGraphExec_t exec), driver.cuGraphExecDestroy(exec))
DRIVER_ENTRY(cudaGraphGetNodes, (cudaGraph_t graph, uint64_t *nodes, size_t *count),
	     driver.cuGraphGetNodes(graph, nodes, count))
DRIVER_ENTRY(cudaGraphDebugDotPrint, (cudaGraph_t graph, const char *path, unsigned flags),
	     driver.cuGraphDebugDotPrint(graph, path, flags))
