// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestCachedSegmentsOfCutStacks: where a stack does not say who called the runtime, a segment is
// PyTorch's if that explains what PyTorch has reserved, and nothing else does.
func TestCachedSegmentsOfCutStacks(t *testing.T) {
	native := func(function, file string) stack.Frame {
		return stack.Frame{Kind: stack.KindNative, Function: function, File: file}
	}
	runtime, cut := native("cudaMalloc", "/nvidia/lib/libcudart.so.12"), stack.Frame{Function: stack.NotLoaded}
	silent := stack.Stack{driver, runtime, bridge, line("empty", 5)}
	of := func(n int, size uint64, s stack.Stack) Allocation {
		return Allocation{Address: 0x7f0000000000 + uint64(n)<<30, Size: size * mib, Device: 1, Stack: s}
	}
	with := func(a Allocation, change func(*Allocation)) Allocation {
		change(&a)
		return a
	}
	many := make([]Allocation, 0, 2*mostCandidates)
	for n := range 2 * mostCandidates {
		many = append(many, of(n+1, 20, silent))
	}
	// Of 22 MiB with a tensor, and what is given; cached is what the snapshot says is not in use of it.
	for _, c := range []struct {
		name             string
		reserved, cached uint64
		more             []Allocation
	}{
		{"the caller is cut off", 42, 20, []Allocation{of(1, 20, silent)}},
		{"rules were not read", 42, 20, []Allocation{of(1, 20, stack.Stack{driver, runtime, cut, bridge, line("empty", 5)})}},
		{"without Python", 42, 20, []Allocation{of(1, 20, stack.Stack{driver, cut})}},
		{"AMD's runtime", 42, 20, []Allocation{of(1, 20, stack.Stack{native("hipMalloc", "/rocm/libamdhip64.so.6"), bridge, line("empty", 5)})}},
		{"no stack", 42, 20, []Allocation{of(1, 20, stack.UnknownStack())}},
		{"mapped pieces", 46, 24, []Allocation{
			with(of(1, 20, silent), func(a *Allocation) { a.IsPiece = true }),
			with(of(1, 4, silent), func(a *Allocation) { a.IsPiece, a.Address = true, a.Address+20*mib })}},
		{"beside one that is known", 44, 22, []Allocation{of(1, 20, silent), of(2, 2, stack.Stack{driver, pool, bridge, line("load", 3)})}},
		{"beside another's", 42, 20, []Allocation{of(1, 20, silent), of(2, 9, silent)}},
		{"two beside another's", 44, 22, []Allocation{of(1, 20, silent), of(2, 9, silent), of(3, 2, silent)}},
		{"all of many", 22 + 20*2*mostCandidates, 20 * 2 * mostCandidates, many},

		{"PyTorch says nothing", 0, 0, []Allocation{of(1, 20, silent)}},
		{"PyTorch has no more", 22, 0, []Allocation{of(1, 20, silent)}},
		{"PyTorch has more", 44, 0, []Allocation{of(1, 20, silent)}},
		{"PyTorch has less than is known", 20, 0, []Allocation{of(1, 20, silent)}},
		{"either of two", 42, 0, []Allocation{of(1, 20, silent), of(2, 20, silent)}},
		{"one, or two others", 42, 0, []Allocation{of(1, 20, silent), of(2, 18, silent), of(3, 2, silent)}},
		{"one of many", 42, 0, many},
		{"another library's", 42, 0, []Allocation{of(1, 20, stack.Stack{driver, runtime, native("ncclCommInitRank", "/nvidia/lib/libnccl.so.2"), bridge, line("init", 1)})}},
		{"another device's", 42, 0, []Allocation{with(of(1, 20, silent), func(a *Allocation) { a.Device = 0 })}},
		{"an array", 42, 0, []Allocation{with(of(1, 20, silent), func(a *Allocation) { a.IsUnplaced = true })}},
		{"managed memory", 42, 0, []Allocation{with(of(1, 20, silent), func(a *Allocation) { a.IsOther = true })}},
		{"a tensor in a segment from before attach", 42, 0, []Allocation{of(1, 20, silent), with(of(2, 1, silent), func(a *Allocation) { a.IsTensor = true })}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := append([]Allocation{of(0, 22, silent), with(of(0, 22, silent), func(a *Allocation) { a.IsTensor = true })}, c.more...)
			var pools map[int32]Pool
			if c.reserved > 0 {
				pools = map[int32]Pool{1: {Reserved: c.reserved * mib, Allocated: 22 * mib}}
			}
			s := New(all, false, pools)
			require.EqualValues(t, c.cached, (s.Bytes-s.ActiveBytes)/mib)
		})
	}
}

// TestAllTensorsWereFreed: PyTorch says so, of each device.
func TestAllTensorsWereFreed(t *testing.T) {
	silent := stack.Stack{driver, {Kind: stack.KindNative, Function: "cudaMalloc", File: "libcudart.so.12"}, line("empty", 5)}
	of := func(device int32, size uint64) Allocation {
		return Allocation{Address: 0x7f0000000000 + uint64(device)<<30, Size: size * mib, Device: device, Stack: silent}
	}
	all := []Allocation{of(0, 20), of(1, 30)}
	for allocated, active := range map[uint64]uint64{0: 30, 1: 50} {
		for _, isSampled := range []bool{false, true} {
			s := New(slices.Clone(all), isSampled, map[int32]Pool{0: {Reserved: 20 * mib, Allocated: allocated}})
			require.EqualValues(t, active, s.ActiveBytes/mib, "device 1 has no pool")
		}
	}
}

func TestPoolsLibraryOfEachVendor(t *testing.T) {
	for name, want := range map[string]bool{
		"libc10_cuda.so": true, "libc10_hip.so": true, "libc10_hip.so.2.9": true, "libc10.so": false, "libamdhip64.so.6": false,
	} {
		frame := stack.Frame{Kind: stack.KindNative, Function: "malloc", File: "/torch/lib/" + name}
		require.Equal(t, want, isOfPool(stack.Stack{driver, frame}), name)
	}
}
