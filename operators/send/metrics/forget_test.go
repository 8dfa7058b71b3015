// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

func refused(run *Run, id uint64) {
	run.Failed(Series{Process: proc(id, uint32(id)), Kind: "device"}, 1<<30)
}

// TestARefusedProcessOfAnotherNodeEnds: it has no rows that could disappear, and its node alone
// could look into /proc.
func TestARefusedProcessOfAnotherNodeEnds(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRunOn("a", "g"), store.NewReader()
	rows := []profile.Row{held(proc(1, 1), "device", 0, 100, 0)}
	refused(run, 2)
	for range silentReadings - 1 {
		run.Rows(rows, over())
		require.Equal(t, []uint64{1, 2}, ids(reader.Read()))
	}
	refused(run, 2) // it still tries
	for range silentReadings - 1 {
		run.Rows(rows, over())
		require.Equal(t, []uint64{1, 2}, ids(reader.Read()))
	}
	run.Rows(rows, over())
	last := reader.Read()
	require.Equal(t, []uint64{1, 2}, ids(last), "once more, with its last values")
	require.EqualValues(t, 2, last.Samples[1].Failed)
	require.True(t, last.Samples[1].Ended)
	require.Equal(t, []uint64{1}, ids(reader.Read()))
	require.Len(t, run.processes, 1)

	refused(run, 2) // it was there all the time
	require.Equal(t, []uint64{1, 2}, ids(reader.Read()))
	run.Rows(append(rows, held(proc(2, 2), "device", 0, 5, 0)), over())
	for range 2 * silentReadings {
		run.Rows(append(rows, held(proc(2, 2), "device", 0, 5, 0)), over())
		require.Equal(t, []uint64{1, 2}, ids(reader.Read()), "it has rows")
	}
}

// TestAFailureBringsAnEndedProcessBack, also if a reader has not seen its end yet.
func TestAFailureBringsAnEndedProcessBack(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRunOn("a", "g"), store.NewReader()
	store.NewReader() // never reads
	refused(run, 2)
	for range silentReadings {
		run.Rows(nil, over())
	}
	reader.Read()
	require.Empty(t, ids(reader.Read()))
	refused(run, 2)
	run.Rows(nil, over())
	got := reader.Read().Samples
	require.Len(t, got, 1)
	require.EqualValues(t, 2, got[0].Failed)
	require.False(t, got[0].Ended)
}

// TestARefusedProcessOfThisNodeEndsWithIt, not by silence.
func TestARefusedProcessOfThisNodeEndsWithIt(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRun("g"), store.NewReader()
	refused(run, 2)
	for range 3 * silentReadings {
		run.Rows(nil, over())
		require.Equal(t, []uint64{2}, ids(reader.Read()))
	}
	run.Rows(nil, over(2))
	require.Equal(t, []uint64{2}, ids(reader.Read()))
	require.Empty(t, ids(reader.Read()))
	for id := range uint64(2 * maxEnded) {
		refused(run, id+10)
	}
	require.Len(t, reader.Read().Samples, 2*maxEnded, "processes that live are not bounded here")
}

// TestRefusedProcessesOfAnotherNodeAreBounded, whether there are readings or not.
func TestRefusedProcessesOfAnotherNodeAreBounded(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRunOn("a", "g"), store.NewReader()
	run.Rows([]profile.Row{held(proc(1, 1), "device", 0, 100, 0)}, over())
	const all = 4 * maxEnded
	for id := range uint64(all) {
		refused(run, id+10)
	}
	require.LessOrEqual(t, len(run.processes), 1+maxEnded+maxEnded/4)
	require.Empty(t, run.done)
	run.Rows([]profile.Row{held(proc(1, 1), "device", 0, 100, 0)}, over())
	got := reader.Read()
	require.Len(t, got.Samples, 1+maxEnded)
	require.EqualValues(t, all-maxEnded, got.Forgotten)
	require.Contains(t, ids(got), uint64(1), "one with rows")
	require.Contains(t, ids(got), uint64(all+9), "the newest")
}
