// SPDX-License-Identifier: Apache-2.0

package difference

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

const mib = 1 << 20

// row is one stack of a line, called by a caller of its own.
func row(function, caller, kind string, taken, freed int64) profile.Row {
	return profile.Row{
		Kind: kind,
		Stack: stack.Stack{
			{Kind: stack.KindPython, Function: function, File: "/app/serve.py", Line: 7},
			{Kind: stack.KindPython, Function: caller, File: "/app/serve.py", Line: 9},
		},
		Values: profile.Values{
			AllocBytes: taken * mib, AllocObjects: taken, FreedBytes: freed * mib, FreedObjects: freed,
			InuseBytes: (taken - freed) * mib, InuseObjects: taken - freed, PeakBytes: taken * mib,
		},
	}
}

func TestLinesThatGrewComeFirstThenThoseThatGaveBack(t *testing.T) {
	before := profile.New(time.Unix(1, 0), []profile.Row{
		row("cache", "a", "tensor", 26, 0), row("idle", "a", "tensor", 9, 2),
		row("forward", "a", "tensor", 5, 5), row("batch", "a", "device", 8, 0),
	})
	after := profile.New(time.Unix(2, 0), []profile.Row{
		row("cache", "a", "tensor", 52, 0), row("cache", "b", "tensor", 10, 4), row("idle", "a", "tensor", 9, 2),
		row("forward", "a", "tensor", 90, 90), row("batch", "a", "device", 8, 8), row("small", "a", "device", 1, 0),
	})
	changes := profile.Diff(before, after)
	var out bytes.Buffer
	require.NoError(t, Write(&out, changes, Options{}))
	require.Equal(t, `       GREW     FREED    BEFORE     AFTER  OBJECTS  DEVICE    KIND FRAME
  +32.0 MiB  4.00 MiB  26.0 MiB  58.0 MiB      +32       0  tensor cache (serve.py:7)
  +1.00 MiB       0 B       0 B  1.00 MiB       +1       0  device small (serve.py:7)
  -8.00 MiB  8.00 MiB  8.00 MiB       0 B       -8       0  device batch (serve.py:7)
        0 B  85.0 MiB       0 B       0 B       +0       0  tensor forward (serve.py:7)
  -7.00 MiB  8.00 MiB  8.00 MiB  1.00 MiB       -7                 (all that the driver gave, reserved by the pool)
  +32.0 MiB  89.0 MiB  33.0 MiB  65.0 MiB      +32                 (all that tensors hold of it)
`, out.String())

	out.Reset()
	require.NoError(t, Write(&out, changes, Options{Limit: 2, Width: 70, Hint: ": hint"}))
	require.Contains(t, out.String(), "2 more lines changed: hint\n")
	require.NotContains(t, out.String(), "batch")
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len([]rune(line)), 71, line)
	}
	require.Contains(t, out.String(), "device sm…\n")

	// What was there before attach is no part of the sum of tensors: its memory is no part
	// of the driver's.
	old := func(bytes int64) profile.Row {
		return profile.Row{Kind: "tensor", Stack: stack.BeforeAttachStack(), Values: profile.Values{InuseBytes: bytes * mib}}
	}
	out.Reset()
	require.NoError(t, Write(&out, profile.Diff(
		profile.New(time.Unix(1, 0), []profile.Row{old(500), row("cache", "a", "tensor", 26, 0)}),
		profile.New(time.Unix(2, 0), []profile.Row{old(300), row("cache", "a", "tensor", 27, 0)}),
	), Options{}))
	require.Regexp(t, `-200 MiB +200 MiB +500 MiB +300 MiB +\+0 +0  tensor \[before attach\]`, out.String())
	require.Regexp(t, `\+1\.00 MiB +0 B +26\.0 MiB +27\.0 MiB +\+1 +\(all that tensors hold of it\)`, out.String())

	// Of another run, whose counters are lower: nothing is said of what was given back.
	out.Reset()
	require.NoError(t, Write(&out, profile.Diff(after, before), Options{}))
	require.Regexp(t, `\+8\.00 MiB +0 B +8\.00 MiB +\+8 +0  device batch`, out.String())
}
