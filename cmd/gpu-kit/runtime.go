// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/taps"
)

// runtimeCall is a call of the runtime, and the driver's calls that examples/simcudart
// makes for it. The tests with PyTorch rely on these.
type runtimeCall struct{ name, expected string }

// runtimeCalls are in an order in which each has its prerequisites. The first calls of a
// thread and of a kernel differ from later ones.
var runtimeCalls = []runtimeCall{
	{"cudaSetDevice", "cuCtxSetCurrent 1, cuDevicePrimaryCtxGetState 1, cuDevicePrimaryCtxRetain 1"},
	{"cudaGetDevice", "cuCtxGetDevice 1"},
	{"cudaMalloc", "cuMemAlloc_v2 1"},
	{"cudaMemsetAsync", "cuMemsetD8Async 1"},
	{"cudaFree", "cuMemFree_v2 1"},
	{"cudaMallocManaged", "cuMemAllocManaged 1"},
	{"cudaFree", "cuMemFree_v2 1"},
	{"cudaHostAlloc", "cuMemHostAlloc 1"},
	{"cudaFreeHost", "cuMemFreeHost 1"},
	{"cudaMallocAsync", "cuMemAllocAsync 1"},
	{"cudaFreeAsync", "cuMemFreeAsync 1"},
	{"cudaStreamCreate", "cuStreamCreate 1"},
	{"cudaEventCreate", "cuEventCreate 1"},
	{"cudaEventRecord", "cuEventRecord 1"},
	{"cudaEventSynchronize", "cuEventSynchronize 1"},
	{"cudaEventDestroy", "cuEventDestroy_v2 1"},
	{"cudaStreamSynchronize", "cuStreamSynchronize 1"},
	{"cudaStreamDestroy", "cuStreamDestroy_v2 1"},
	{"cudaLaunchKernel", "cuCtxGetCurrent 1, cuCtxPopCurrent_v2 1, cuCtxPushCurrent_v2 1, cuLaunchKernel 1, " +
		"cuLibraryGetModule 1, cuLibraryLoadData 1, cuModuleGetFunction 1"},
	{"cudaLaunchKernel", "cuCtxGetCurrent 1, cuLaunchKernel 1"},
	{"cudaDeviceSynchronize", "cuCtxSynchronize 1"},
}

// runtime counts the calls of the driver's exports that each call of the runtime makes.
func (k *kit) runtime(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	a, err := w.Do(commandLimit, "runtime")
	if err != nil {
		return err
	}
	if a.Text("path") == "" {
		return errNotHere("no CUDA runtime is installed: no libcudart.so.13, .12 or .11.0 (set LD_LIBRARY_PATH)")
	}
	version := a.Number("version")
	s.Record("version", fmt.Sprintf("%d.%d", version/1000, version%1000/10), false)
	// The runtime makes a thousand driver calls at its start; they are not counted.
	if _, err := w.Must(commandLimit, "runtime cudaDeviceSynchronize"); err != nil {
		return err
	}
	path, err := libcuda(w.PID)
	if err != nil {
		return err
	}
	entries, err := taps.Entries(path, "cu")
	if err != nil {
		return err
	}
	calls, err := taps.CountCalls(path, w.PID, entries)
	if err != nil {
		return err
	}
	defer calls.Close()
	before, seen := map[string]uint64{}, map[string]bool{}
	for _, c := range runtimeCalls {
		a, err := w.Do(commandLimit, "runtime %s", c.name)
		if err != nil {
			return err
		}
		after, err := calls.Read()
		if err != nil {
			return err
		}
		name := c.name
		if seen[name] {
			name += ", again"
		}
		seen[c.name] = true
		if a.Err() != nil {
			s.Impossible(name, a.Err().Error())
		} else {
			s.Equal(name, c.expected, listed(since(before, after)))
		}
		before = after
	}
	return nil
}

// since are the counts that have grown, and by how much.
func since(before, after map[string]uint64) map[string]uint64 {
	grown := map[string]uint64{}
	for name, n := range after {
		if n > before[name] {
			grown[name] = n - before[name]
		}
	}
	return grown
}
