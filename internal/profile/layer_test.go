// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// The pool's blocks lie in the driver's segments: no type has both.
func TestLayersAreNeverAddedUp(t *testing.T) {
	line := stack.Stack{{Kind: stack.KindPython, Function: "f", File: "a.py", Line: 1}}
	segment := Row{Process: Process{ID: 1}, Stack: line, Kind: "device", Values: Values{AllocBytes: 20 << 20, AllocObjects: 1, InuseBytes: 20 << 20, InuseObjects: 1}}
	tensor := Row{Process: Process{ID: 1}, Stack: line, Kind: KindTensor, Values: Values{AllocBytes: 3 << 20, AllocObjects: 3, InuseBytes: 2 << 20, InuseObjects: 2}}
	require.Equal(t, Types(), New(time.Time{}, []Row{segment}).Types(), "without tensors nothing is new")

	p := New(time.Time{}, []Row{segment, tensor})
	require.Equal(t, append(Types(), TensorTypes()...), p.Types())
	for _, want := range []struct {
		t   Type
		sum int64
	}{{AllocSpace, 20 << 20}, {InuseSpace, 20 << 20}, {AllocObjects, 1}, {TensorAllocSpace, 3 << 20}, {TensorInuseSpace, 2 << 20}, {TensorAllocObjects, 3}, {TensorInuseObjects, 2}} {
		var sum int64
		for i := range p.Rows {
			sum += p.Rows[i].Get(want.t)
		}
		require.Equal(t, want.sum, sum, want.t)
	}
}

// TestTimeOnTheGPUHasTypesOfItsOwn, which are there when it is known.
func TestTimeOnTheGPUHasTypesOfItsOwn(t *testing.T) {
	line := stack.Stack{{Kind: stack.KindPython, Function: "f", File: "a.py", Line: 1}}
	launch := Row{Process: Process{ID: 1}, Stack: line, Kind: "launch", Values: Values{Calls: 3, Launches: 3, HostNanoseconds: 12}}
	kernel := Row{Process: Process{ID: 1}, Stack: line, Kind: "kernel", Values: Values{Kernels: 2, DeviceNanoseconds: 700}}
	p := New(time.Time{}, []Row{launch})
	p.Subject = Calls
	require.Equal(t, Calls.Types(), p.Types())
	p = New(time.Time{}, []Row{launch, kernel})
	p.Subject = Calls
	require.Equal(t, append(Calls.Types(), Kernels, DeviceTime), p.Types())
	require.Equal(t, []string{"device", "nanoseconds"}, []string{DeviceTime.String(), DeviceTime.Unit()})
	for want, sum := range map[Type]int64{Launches: 3, HostTime: 12, Kernels: 2, DeviceTime: 700} {
		var got int64
		for i := range p.Rows {
			got += p.Rows[i].Get(want)
		}
		require.Equal(t, sum, got, want)
	}
	twice := kernel.Values.Add(kernel.Values)
	require.Equal(t, kernel.Values, twice.Sub(kernel.Values))
}
