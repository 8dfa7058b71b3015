// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

func TestMarkIsDueWhenCallsBeginToHaveTheFunction(t *testing.T) {
	saving := stack.Stack{
		{Kind: stack.KindNative, Function: "Trainer.save_all"}, // only functions of Python count
		{Kind: stack.KindPython, Function: "pack", File: "io.py", Line: 3},
		{Kind: stack.KindPython, Function: "Trainer.save_checkpoint", File: "train.py", Line: 7},
	}
	training := stack.Stack{{Kind: stack.KindPython, Function: "Trainer.step", File: "train.py", Line: 9}}
	ids := []profile.RowID{{StackID: 1}, {StackID: 2}}
	f := frameMarks{pattern: "*.save_*"}
	interval := func(values ...profile.Values) bool {
		for n, v := range values {
			f.see(ids[n], profile.Row{Process: profile.Process{PID: uint32(70 + n)}, Stack: []stack.Stack{training, saving}[n], Values: v})
		}
		return f.end()
	}
	allocs := func(n int64) profile.Values { return profile.Values{AllocObjects: n} }
	freed := profile.Values{AllocObjects: 5, FreedObjects: 2}
	require.False(t, interval(allocs(1)))
	require.True(t, interval(allocs(2), allocs(1)), "it begins")
	require.Equal(t, "Trainer.save_checkpoint (train.py:7)", f.where)
	require.Equal(t, []uint32{71}, f.pids, "the process that calls it")
	require.False(t, interval(allocs(3), allocs(5)), "it goes on")
	require.False(t, interval(allocs(4), allocs(5)), "it has ended")
	require.False(t, interval(allocs(5), freed), "its memory is freed")
	require.True(t, interval(allocs(6), allocs(6)), "it begins again")
	require.False(t, interval(allocs(7)), "the row is gone")
	require.True(t, interval(allocs(8), allocs(1)), "and back")

	for _, v := range []profile.Values{{Calls: 1}, {Samples: 1}} {
		f = frameMarks{pattern: "Trainer.save_checkpoint"}
		require.True(t, interval(profile.Values{}, v))
	}
	f = frameMarks{pattern: "save_checkpoint"}
	require.False(t, interval(allocs(1), allocs(1)), "the whole name counts")
	f = frameMarks{}
	require.False(t, interval(allocs(1), allocs(1)))
}
