// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/stack"
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
