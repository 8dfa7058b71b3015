// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

const mib = 1 << 20

// largest are the ten largest holders at the refusal, with their tags in the journal.
var largest = []struct {
	name  string
	bytes uint64
	tag   uint64
}{
	{"weights", 40 * mib, 1}, {"kv_cache", 20 * mib, 2}, {"adapters", 9 * mib, 11}, {"encoder_cache", 8 * mib, 3},
	{"activations", 8 * mib, 4}, {"embeddings", 7 * mib, 8}, {"gradients", 6 * mib, 9}, {"workspace", 5 * mib, 6},
	{"optimizer", 4 * mib, 10}, {"staging", 3 * mib, 7},
}

// requireHolders compares the text of an event with the largest holders. Two of them have
// the same size, in either order.
func requireHolders(t *testing.T, holders string) {
	t.Helper()
	for i, text := range strings.Split(holders, "; ") {
		var size float64
		var unit, who string
		n, err := fmt.Sscanf(strings.ReplaceAll(text, " (", "("), "%g %s %s", &size, &unit, &who)
		require.NoError(t, err, text)
		require.Equal(t, 3, n)
		require.Equal(t, "MiB", unit)
		require.InDelta(t, float64(largest[i].bytes)/mib, size, 0.05, text)
		require.Contains(t, []string{largest[i].name, "encoder_cache", "activations"}, strings.Split(who, "(")[0])
		require.Contains(t, text, subject.Frame(t, strings.Split(who, "(")[0]))
	}
	require.Equal(t, len(largest)-1, strings.Count(holders, "; "), holders)
}

// Twelve functions hold memory, the ten largest of which the event names. Sizes are in
// MiB of a device of 128 MiB.
func TestRefusedAllocationNamesTheHolders(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t, "SIMCUDA_CAPACITY=128MiB")
	w.Load()
	file := filepath.Join(t.TempDir(), "lines")
	r := start(t, "--pid", fmt.Sprint(w.PID()), "--jsonl-out", file)
	r.waitAttached(w.PID())

	w.Do("alloc weights 1 %d", 40*mib)
	w.Do("alloc kv_cache 2 %d", 10*mib)
	w.Do("alloc activations 3 %d", 4*mib)
	w.Do("alloc encoder_cache 1 %d", 8*mib)
	w.Do("alloc workspace 1 %d", 5*mib)
	w.Do("alloc staging 1 %d", 3*mib)
	w.Do("alloc logits 1 %d", 1*mib)
	for i, name := range []string{"embeddings", "gradients", "optimizer", "adapters", "prompts"} {
		w.Do("alloc %s 1 %d", name, []int{7, 6, 4, 9, 2}[i]*mib)
	}
	w.Do("free activations 1") // 117 - 4 are left
	require.Equal(t, "ok 1", w.Request("alloc logits 1 %d", 16*mib))
	r.wait("the event", func() bool { return len(r.ooms) > 0 })

	// The journal confirms the assumptions of the test.
	truth := w.Truth()
	require.EqualValues(t, 1, truth.OOMs)
	require.EqualValues(t, 113*mib, truth.InUseBytes())
	byTag := map[uint64]uint64{}
	for key, sums := range w.Summary().Rows {
		byTag[key.Tag] += sums.InUseBytes()
	}
	for _, h := range largest {
		require.Equal(t, h.bytes, byTag[h.tag], h.name)
	}

	require.Len(t, r.ooms, 1)
	o := r.ooms[0]
	require.EqualValues(t, w.PID(), o.Proc.PID)
	require.Equal(t, "cuMemAlloc_v2", o.API)
	require.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", o.Error)
	require.EqualValues(t, 16*mib, o.RequestedBytes)
	require.Equal(t, truth.InUseBytes(), o.InuseBytes)
	require.Equal(t, subject.Frame(t, "logits"), o.Frame)
	require.Contains(t, o.Stack, "; Server.alloc (steps.py:")
	requireHolders(t, o.Holders)

	w.End()
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.lost())

	_, ooms := readLines(t, file)
	require.Len(t, ooms, 1)
	l := ooms[0]
	require.EqualValues(t, w.PID(), l.PID)
	require.Equal(t, o.API, l.API)
	require.Equal(t, o.Error, l.Error)
	require.EqualValues(t, o.RequestedBytes, l.RequestedBytes)
	require.EqualValues(t, o.InuseBytes, l.InuseBytes)
	require.Equal(t, "logits", innermost(l.Stack))
	held := map[string]int64{}
	for i, h := range l.Holders {
		held[innermost(h.Stack)] = h.Bytes
		require.True(t, i == 0 || h.Bytes <= l.Holders[i-1].Bytes, "largest first")
	}
	want := map[string]int64{}
	for _, h := range largest {
		want[h.name] = int64(h.bytes)
	}
	require.Equal(t, want, held)
}

// innermost is the function of the innermost Python frame.
func innermost(s stackFrames) string {
	for _, f := range s {
		if f.Kind == "python" {
			return f.Function
		}
	}
	return ""
}
