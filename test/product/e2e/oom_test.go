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

// Twelve functions hold memory, the ten largest of which the event names. Sizes are in
// MiB of a device of 128 MiB.
func TestRefusedAllocationNamesTheHolders(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
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
	names := []string{"weights", "kv_cache", "adapters", "encoder_cache", "activations", "embeddings", "gradients",
		"workspace", "optimizer", "staging"}
	sizes := []uint64{40 * mib, 20 * mib, 9 * mib, 8 * mib, 8 * mib, 7 * mib, 6 * mib, 5 * mib, 4 * mib, 3 * mib}
	for i, tag := range []uint64{1, 2, 11, 3, 4, 8, 9, 6, 10, 7} {
		require.Equal(t, sizes[i], byTag[tag], names[i])
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
	for i, text := range strings.Split(o.Holders, "; ") {
		var size float64
		var unit, who string
		n, err := fmt.Sscanf(strings.ReplaceAll(text, " (", "("), "%g %s %s", &size, &unit, &who)
		require.NoError(t, err, text)
		require.Equal(t, 3, n)
		require.Equal(t, "MiB", unit)
		require.InDelta(t, float64(sizes[i])/mib, size, 0.05, text)
		require.Contains(t, []string{names[i], "encoder_cache", "activations"}, strings.Split(who, "(")[0])
		require.Contains(t, text, subject.Frame(t, strings.Split(who, "(")[0]))
	}
	require.Equal(t, len(names)-1, strings.Count(o.Holders, "; "), o.Holders)

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
	for i, name := range names {
		want[name] = int64(sizes[i])
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
