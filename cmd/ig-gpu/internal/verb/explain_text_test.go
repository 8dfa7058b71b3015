// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestExplainNamesTheLineOfTheTensorsThatGrow: PyTorch's pool requests memory from the driver at
// whichever line finds it empty.
func TestExplainNamesTheLineOfTheTensorsThatGrow(t *testing.T) {
	const mib = 1 << 20
	driver := func(first, now uint64) *place {
		return &place{frame: "backward (train.py:42)", low: [2]uint64{first * mib, now * mib}, now: now * mib}
	}
	tensor := func(frame string, first, now uint64) *place {
		return &place{frame: frame, low: [2]uint64{first * mib, now * mib}, now: now * mib, isTensor: true}
	}
	cache, other := "remember (serve.py:28)", "forward (model.py:10)"
	for name, c := range map[string]struct {
		places []*place
		growth int64 // of tensors, in MiB
		text   string
	}{
		"tensors grow": {
			[]*place{driver(10, 30), tensor(cache, 5, 30), tensor(stack.BeforeAttach, 90, 90)}, 25,
			cache + ": tensors that it made hold 25.0 MiB more than 5s ago, which is 17.6 GiB per hour if it continues.",
		},
		"tensors take the place of older ones": {
			[]*place{driver(10, 10), tensor(cache, 0, 30), tensor(stack.BeforeAttach, 90, 60)}, 0,
			cache + ": tensors that it made hold most (30.0 MiB), and do not grow.",
		},
		"some are in place of older ones": {
			[]*place{driver(10, 30), tensor(cache, 0, 30), tensor(other, 0, 20), tensor(stack.BeforeAttach, 90, 80)}, 40,
			cache + ": tensors that it made hold 30.0 MiB more than 5s ago",
		},
		"the pool alone grows": {
			[]*place{driver(10, 30), tensor(cache, 30, 30)}, 0,
			"backward (train.py:42): it holds 20.0 MiB more than 5s ago, which is 14.1 GiB per hour if it continues. A longer watch tells a leak from a cache that fills. " +
				"PyTorch's tensors do not grow: if its pool requested that memory, requests do not fit what they freed.",
		},
		"all tensors are from before": {
			[]*place{driver(10, 30), tensor(stack.BeforeAttach, 90, 90)}, 0,
			"backward (train.py:42): it holds 20.0 MiB more than 5s ago",
		},
		"no PyTorch":    {[]*place{driver(10, 30)}, 0, "backward (train.py:42): it holds 20.0 MiB more than 5s ago"},
		"nothing grows": {[]*place{driver(30, 30)}, 0, "backward (train.py:42): it holds most (30.0 MiB), and does not grow."},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts([]uint32{7}, 10*time.Second)
			f.read, f.since, f.windows = 2, 5*time.Second, [2]int{1, 1}
			for _, p := range c.places {
				f.places[p.frame] = p
			}
			_, sum := f.tensorGrowth()
			require.Equal(t, c.growth*mib, sum)
			p := &page{}
			composeBlame(p, f, f.outcomes(), "7")
			require.Len(t, p.all, 1)
			require.Contains(t, p.all[0].Text, c.text)
		})
	}
}

// TestGrowthIsUnknownWithoutAReadingInEachWindow: a busy machine reads rarely.
func TestGrowthIsUnknownWithoutAReadingInEachWindow(t *testing.T) {
	for _, windows := range [][2]int{{0, 3}, {3, 0}, {0, 0}} {
		f := newFacts([]uint32{7}, 10*time.Second)
		f.read, f.windows = 2, windows
		f.places["cache"] = &place{frame: "cache (serve.py:20)", low: [2]uint64{0, 30 << 20}, now: 30 << 20}
		var text strings.Builder
		require.NoError(t, writeSentences(&text, compose(f), false))
		require.Contains(t, text.String(), "Unknown: what grew.")
		require.Contains(t, text.String(), "cache (serve.py:20): it holds most (30.0 MiB); whether it grows is unknown.")
		require.NotContains(t, text.String(), "more than")
	}
}

// TestOnlyWhatStaysIsGrowth: a reading comes anywhere in a step.
func TestOnlyWhatStaysIsGrowth(t *testing.T) {
	f := newFacts([]uint32{7}, 9*time.Second)
	step, leak, late := &place{}, &place{}, &place{}
	f.places["step"], f.places["leak"] = step, leak
	for n, held := range []uint64{900, 0, 500, 20, 90, 60, 300, 15, 200} {
		if n == 7 {
			f.places["late"] = late
		}
		step.now, leak.now, late.now = held, uint64(100*n), 50
		f.lows(time.Duration(n) * time.Second)
	}
	require.EqualValues(t, -5, grown(step), "the least of 20, 90, 60 and of 300, 15, 200")
	require.EqualValues(t, 300, grown(leak))
	require.EqualValues(t, 0, grown(late), "it may be one of a step's")
}

// TestNoNameInAnExplanationDrivesATerminal.
func TestNoNameInAnExplanationDrivesATerminal(t *testing.T) {
	var text strings.Builder
	require.NoError(t, writeSentences(&text, []sentence{{Part: "Memory", Text: "\x1b]52;c;ZXZpbA==\a\x1b[2Jpython3[7] held the most:\n1 B by f (a.py:1)"}}, false))
	require.Equal(t, "Memory\n  - \ufffd]52;c;ZXZpbA==\ufffd\ufffd[2Jpython3[7] held the most:\n    1 B by f (a.py:1)\n", text.String())
}
