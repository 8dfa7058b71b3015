// SPDX-License-Identifier: Apache-2.0

package live

import (
	"math"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/recording"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

// TestAKernelsNameIsKeptInItsRow, and nowhere else, for rows that the recording forgets are without number.
func TestAKernelsNameIsKeptInItsRow(t *testing.T) {
	caller := stack.Stack{{Kind: stack.KindPython, Function: "f", File: "/a/m.py", Line: 3}}
	var known recording.Recording
	see := func(id profile.RowID, kernel string, s stack.Stack) {
		known.See(id, profile.Values{Calls: 1}, 0, func() profile.Row { return profile.Row{Kind: id.Kind, Stack: rows.Stack(id, kernel, s)} })
	}
	known.Begin(time.Now())
	see(profile.RowID{Kind: "launch"}, "gemm", caller)
	see(profile.RowID{Kind: "unseen"}, "softmax", nil)
	see(profile.RowID{Kind: "copy"}, "", caller)
	see(profile.RowID{Kind: "wait"}, "", nil)
	known.End()
	got := map[string]string{}
	for _, r := range currentRows(&known) {
		got[r.Kind] = r.Kernel
	}
	require.Equal(t, map[string]string{"launch": "gemm", "unseen": "softmax", "copy": "", "wait": ""}, got)

	known.Begin(time.Now())
	for n := range recording.MaxGone + 100 {
		see(profile.RowID{Kind: "launch", StackID: uint64(n + 1)}, "gemm", nil)
	}
	known.End()
	known.Begin(time.Now())
	known.End()
	require.NotZero(t, known.Forgotten)
	require.Len(t, currentRows(&known), recording.MaxGone)
}

// shownOOM shows an event of the data source `ooms` and returns its text.
func shownOOM(t *testing.T, requested uint64, reason string) (*instance, string) {
	return shownOOMOf(t, "cuMemAlloc_v2", requested, reason)
}

// shownOOMOf shows one of process 7; pools are the processes that have one of PyTorch's.
func shownOOMOf(t *testing.T, call string, requested uint64, reason string, pools ...pool) (*instance, string) {
	ds, err := datasource.New(datasource.TypeSingle, "ooms")
	require.NoError(t, err)
	bytes, err := ds.AddField("requested_bytes", api.Kind_Uint64)
	require.NoError(t, err)
	name, err := ds.AddField("error", api.Kind_String)
	require.NoError(t, err)
	device, err := ds.AddField("device", api.Kind_Int32)
	require.NoError(t, err)
	c := newTerminal()
	c.elsewhere = true
	calls, err := ds.AddField("api", api.Kind_String)
	require.NoError(t, err)
	pid, err := ds.AddField("proc.pid", api.Kind_Uint32)
	require.NoError(t, err)
	i := &instance{screen: NewScreen(ScreenConfig{Console: c, Title: "cuda_alloc"})}
	i.screen.pools(pools)
	require.NoError(t, i.bindOOMs(ds))
	p, err := ds.NewPacketSingle()
	require.NoError(t, err)
	require.NoError(t, device.PutInt32(p, 3))
	require.NoError(t, calls.PutString(p, call))
	require.NoError(t, pid.PutUint32(p, 7))
	require.NoError(t, bytes.PutUint64(p, requested))
	require.NoError(t, name.PutString(p, reason))
	require.NoError(t, ds.EmitAndRelease(p))
	return i, c.raw.String()
}

func TestARefusedRequestOfAnySizeIsNotNegative(t *testing.T) {
	for _, bytes := range []uint64{1 << 63, math.MaxUint64} {
		_, text := shownOOM(t, bytes, "CUDA_ERROR_OUT_OF_MEMORY")
		require.Contains(t, text, "of 8.00 EiB on GPU 3 at")
	}
}

// TestOnlyALackOfMemoryIsRed: a program that finds out what a GPU supports is not out of memory.
func TestOnlyALackOfMemoryIsRed(t *testing.T) {
	i, text := shownOOM(t, 1<<20, "CUDA_ERROR_OUT_OF_MEMORY")
	require.Contains(t, text, "out of memory: ")
	require.Equal(t, screen.Red, i.screen.messages.all[0].style)
	i, text = shownOOM(t, 1<<20, "CUDA_ERROR_NOT_PERMITTED")
	require.Contains(t, text, "allocation failed: ")
	require.NotContains(t, text, "out of memory")
	require.NotContains(t, text, "it held")
	require.Equal(t, screen.Yellow, i.screen.messages.all[0].style)
}

// TestWhatPyTorchMayRecoverFromIsNotRed: its pool returns its cache and asks again, and reports it where that was in vain.
func TestWhatPyTorchMayRecoverFromIsNotRed(t *testing.T) {
	i, text := shownOOMOf(t, "cuMemAlloc_v2", 1<<20, "CUDA_ERROR_OUT_OF_MEMORY", pool{pid: 7})
	require.Contains(t, text, "the driver refused [7] cuMemAlloc_v2 of 1.00 MiB on GPU 3 at ")
	require.Contains(t, text, "; if PyTorch's pool asked, it returns its cache and asks again")
	require.NotContains(t, text, "out of memory: ")
	require.Equal(t, screen.Yellow, i.screen.messages.all[0].style)
	i, text = shownOOMOf(t, "torch", 1<<20, "CUDA_ERROR_OUT_OF_MEMORY", pool{pid: 7})
	require.Contains(t, text, "out of memory: PyTorch's pool refused [7] 1.00 MiB on GPU 3 at code without a name: ")
	require.Equal(t, screen.Red, i.screen.messages.all[0].style)
	_, text = shownOOMOf(t, "cuMemAlloc_v2", 1<<20, "CUDA_ERROR_OUT_OF_MEMORY", pool{pid: 8})
	require.Contains(t, text, "out of memory: [7] ", "another process has the pool")
}
