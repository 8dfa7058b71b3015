// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		known.See(id, profile.Values{Calls: 1}, func() profile.Row { return profile.Row{Kind: id.Kind, Stack: rows.Stack(id, kernel, s)} })
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
