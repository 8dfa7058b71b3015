// SPDX-License-Identifier: Apache-2.0

package weave

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKernelsHaveTheirStreamsTrack, with an arrow from each launch: from a graph's to the
// first of its kernels, and none where the launch was not seen.
func TestKernelsHaveTheirStreamsTrack(t *testing.T) {
	r := record(t)
	w := New(r)
	stack := python(5, "main", "forward")
	w.Call(&Call{Thread: me, Start: 100, End: 110, Function: "cuLaunchKernel", Kind: Launch, Kernel: "gemm", Stream: 0x10, Device: DeviceOf(1), Stack: stack})
	run := func(stream, graph, correlation uint32, start, end, launch uint64) {
		k := &Kernel{
			Thread: me, Start: start, End: end, Launch: launch, Name: "gemm", Device: DeviceOf(1), Stream: stream,
			Graph: graph, Correlation: correlation,
		}
		if launch != 0 {
			k.Function, k.Stack = "cuLaunchKernel", stack
		}
		w.Kernel(k)
	}
	run(7, 0, 1, 1000, 1500, 100)
	run(7, 3, 2, 1500, 1600, 120)
	run(7, 3, 2, 1600, 1700, 120)
	run(8, 3, 2, 1550, 1650, 120)
	run(7, 0, 3, 2000, 2100, 0)
	run(7, 0, 4, 2050, 2150, 0) // at the same time: a second track
	w.End()
	var of7, of8 int
	for on, name := range r.names {
		all := r.of(on, "kernel")
		switch name {
		case "GPU 1, kernels of stream 7":
			of7 += len(all)
			slices.SortFunc(all, func(a, b slice) int { return int(int64(a.Start) - int64(b.Start)) })
			for i := 1; i < len(all); i++ {
				require.LessOrEqual(t, all[i-1].End, all[i].Start)
			}
		case "GPU 1, kernels of stream 8":
			of8 += len(all)
		default:
			require.Empty(t, all, name)
		}
	}
	require.Equal(t, []int{5, 1}, []int{of7, of8})
	require.Len(t, r.arrows, 2)
	for n, want := range []struct{ from, to uint64 }{{100, 1000}, {120, 1500}} {
		require.Equal(t, mine, r.arrows[n].From)
		require.Equal(t, want, struct{ from, to uint64 }{r.arrows[n].FromNS, r.arrows[n].ToNS})
	}
	// A wait has no arrows to kernels reported by CUPTI.
	w.Call(&Call{Thread: me, Start: 3000, End: 3001, Function: "cuCtxSynchronize", Kind: Wait, Device: DeviceOf(1)})
	require.Len(t, r.arrows, 3, "one for the launch's stream")
}
