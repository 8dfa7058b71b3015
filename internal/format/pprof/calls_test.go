// SPDX-License-Identifier: Apache-2.0

package pprof

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	gpu "github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestCallsComeBack: a profile of calls has its four values and its device, where it is
// known; one of before calls had devices has none.
func TestCallsComeBack(t *testing.T) {
	p := gpu.New(time.Unix(100, 0), []gpu.Row{
		{Process: gpu.Process{PID: 1, Comm: "python3"}, Kind: "launch", Device: gpu.NoDevice,
			Stack:  stack.Stack{{Kind: stack.KindNative, Function: "gemm(float*)"}, {Kind: stack.KindPython, Function: "step", File: "a.py", Line: 3}},
			Values: gpu.Values{Calls: 5, Launches: 5, HostNanoseconds: 100}},
		{Process: gpu.Process{PID: 1, Comm: "python3"}, Kind: "copy HtoD", Device: 3,
			Stack:  stack.Stack{{Kind: stack.KindPython, Function: "step", File: "a.py", Line: 4}},
			Values: gpu.Values{Calls: 2, CopiedBytes: 4096, HostNanoseconds: 70}},
		{Process: gpu.Process{PID: 1, Comm: "python3"}, Kind: "wait", Device: gpu.UnknownDevice,
			Stack:  stack.Stack{{Kind: stack.KindPython, Function: "step", File: "a.py", Line: 5}},
			Values: gpu.Values{Calls: 1, WaitNanoseconds: 30, HostNanoseconds: 30}},
		{Process: gpu.Process{PID: 1, Comm: "python3"}, Kind: "kernel", Device: 0,
			Stack:  stack.Stack{{Kind: stack.KindNative, Function: "gemm(float*)"}, {Kind: stack.KindPython, Function: "step", File: "a.py", Line: 3}},
			Values: gpu.Values{Kernels: 4, DeviceNanoseconds: 900}},
	})
	p.Subject = gpu.Calls
	var b bytes.Buffer
	require.NoError(t, Encode(&b, p))
	got, err := Decode(&b)
	require.NoError(t, err)
	require.Equal(t, gpu.Calls, got.Subject)
	require.Len(t, got.Rows, 4)
	for i, want := range p.Rows {
		for _, typ := range append(gpu.Calls.Types(), gpu.DeviceTypes()...) {
			require.Equal(t, want.Get(typ), got.Rows[i].Get(typ), typ)
		}
		require.Equal(t, want.Kind, got.Rows[i].Kind)
		require.Equal(t, want.Device, got.Rows[i].Device)
		require.Equal(t, want.Stack[len(want.Stack)-1], got.Rows[i].Stack[len(got.Rows[i].Stack)-1])
	}
	require.Equal(t, "host_time", gpu.Calls.Default().String())
}
