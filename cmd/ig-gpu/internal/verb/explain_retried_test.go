// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ooms"
)

// asking is a process whose line allocates and is refused.
type asking struct{ *facts }

func newAsking() asking {
	a := asking{watched(-1)}
	a.peaks.rows = map[profile.RowID]*peakRow{}
	return a
}

// read is a reading in which the line holds so much, and has allocated so much in total.
func (a asking) read(held, allocated int64) {
	a.peaks.rows[profile.RowID{Process: 1}] = &peakRow{frame: "next_batch (serve.py:30)", where: "next_batch (serve.py:30)", row: profile.Row{
		Process: profile.Process{ID: 1, PID: 7}, Kind: "device", Values: profile.Values{InuseBytes: held, AllocBytes: allocated},
	}}
	a.refused.retries.read(&a.peaks)
}

// refuse is a refusal while the process holds so much.
func (a asking) refuse(held uint64) {
	r := refusedBy("", held)
	a.refused.retries.refused(len(a.refused.all), &r, &a.peaks)
	a.refused.all = append(a.refused.all, r)
}

// TestAllocatorsThatAskForLessAreNotOutOfMemory: JAX's asks for 75 % of a GPU, and then for a tenth less until it fits; CuPy's
// returns its blocks and asks again.
func TestAllocatorsThatAskForLessAreNotOutOfMemory(t *testing.T) {
	const gib = 1 << 30
	jax := newAsking()
	for range 8 {
		jax.refuse(0)
	}
	jax.read(20*gib, 20*gib)
	text := explained(t, jax.facts)
	require.Contains(t, text, "The driver refused 8 times, the last time cuMemAlloc_v2 of 2.00 GiB on GPU 0 at next_batch (serve.py:30): CUDA_ERROR_OUT_OF_MEMORY.\n"+
		"    The same line got memory later: it asked again, or for less")
	require.NotContains(t, text, "8 allocations were refused")
	require.NotContains(t, text, "its allocation was refused")
	require.NotContains(t, text, "No allocation was refused")

	cupy := newAsking()
	cupy.read(60*gib, 60*gib)
	cupy.refuse(78 * gib)
	cupy.read(30*gib, 80*gib)
	require.Contains(t, explained(t, cupy.facts), "The same line got memory")

	unknown := newAsking() // of a context from before the watch
	r := refusedBy("", 0)
	r.Device = profile.UnknownDevice
	unknown.refused.retries.refused(0, &r, &unknown.peaks)
	unknown.refused.all = append(unknown.refused.all, r)
	unknown.read(gib, gib)
	require.Contains(t, explained(t, unknown.facts), "The same line got memory")

	later := newAsking()
	later.refuse(0)
	later.read(gib, 0)
	require.Contains(t, explained(t, later.facts), "An allocation was refused")
	later.read(gib, gib)
	require.Contains(t, explained(t, later.facts), "The same line got memory")
}

// TestWhatALineAllocatedBeforeItsRefusalIsNoRetry, nor is memory that a process no longer has because it ended.
func TestWhatALineAllocatedBeforeItsRefusalIsNoRetry(t *testing.T) {
	const gib = 1 << 30
	full := newAsking()
	full.read(10*gib, 10*gib)
	full.refuse(70 * gib)
	for range 3 {
		full.read(70*gib, 70*gib)
	}
	require.Contains(t, explained(t, full.facts), "An allocation was refused: cuMemAlloc_v2 of 2.00 GiB")

	ended := newAsking()
	ended.refuse(0)
	ended.read(20*gib, 20*gib)
	ended.read(0, 20*gib)
	require.Contains(t, explained(t, ended.facts), "An allocation was refused")

	pinned := newAsking()
	pinned.refused.retries.refused(0, &ooms.Failure{PID: 7, IsHost: true, Device: profile.UnknownDevice}, &pinned.peaks)
	require.Empty(t, pinned.refused.retries.of)
}
