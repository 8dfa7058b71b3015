// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// What one process has cost delays it, and what a root directory has cost delays the processes in it,
// new ones, too; others are read at once.
func TestReadingMappingsIsBounded(t *testing.T) {
	tr := &Tracer{cfg: Config{ProcFS: "/proc"}, state: newState()}
	now := time.Now()
	costly, other := &process{root: rootKey{1, 1}, spent: newSpent()}, &process{root: rootKey{1, 1}, spent: newSpent()}
	for range 10 {
		require.Zero(t, tr.pause(1, other, now))
		tr.take(costly, costOf(65_000))
	}
	pause := tr.pause(1, costly, now)
	require.Greater(t, pause, 5*time.Second)
	require.Less(t, pause, 20*time.Second)
	require.Zero(t, tr.pause(1, costly, now.Add(pause+time.Second)))
	require.Zero(t, tr.pause(1, other, now))

	for range 100 { // processes that end after one read each
		tr.take(&process{root: rootKey{1, 1}, spent: newSpent()}, costOf(65_000))
	}
	require.Positive(t, tr.pause(1, other, now))
	require.Zero(t, tr.pause(1, &process{root: rootKey{1, 2}, spent: newSpent()}, now), "another container")
	root := tr.rootOf(1)
	require.Zero(t, tr.pause(1, nil, now))
	tr.spent[root] = tr.spent[rootKey{1, 1}]
	require.Positive(t, tr.pause(1, nil, now), "a process that was not read yet")
}

// Root directories start and end with containers: a scan forgets those that have nothing to pay back.
func TestPaidRootsAreForgotten(t *testing.T) {
	tr := &Tracer{cfg: Config{ProcFS: t.TempDir()}, state: newState()}
	paid, owing := rootKey{1, 1}, rootKey{1, 2}
	tr.spent[paid], tr.spent[owing] = newRootSpent(), newRootSpent()
	tr.spent[paid].Take(time.Millisecond, time.Now().Add(-time.Minute))
	tr.spent[owing].Take(time.Minute, time.Now())
	tr.forgetPaid(time.Now())
	require.NotContains(t, tr.spent, paid)
	require.Contains(t, tr.spent, owing)
}

// A process that was put off is read by a scan, once it may cost something again.
func TestWhatWasPutOffIsReadLater(t *testing.T) {
	tr, err := New(Config{Points: []Point{{Library: "libcuda", Symbol: "cuInit"}}, Programs: Programs{Enter: &ebpf.Program{}}, Mode: Perf})
	require.NoError(t, err)
	pid := startCommand(t, "sh", "-c", "echo up; read x")
	tr.look(pid)
	require.EqualValues(t, 1, tr.stats.MapsRead)
	p := tr.processes[pid]
	for tr.pause(pid, p, time.Now()) == 0 {
		tr.take(p, stuckCost)
	}
	tr.look(pid)
	require.EqualValues(t, 1, tr.stats.MapsRead)
	require.EqualValues(t, 1, tr.stats.Later)
	p.spent = newSpent()
	tr.spent[p.root] = newRootSpent()
	tr.look(pid)
	require.EqualValues(t, 2, tr.stats.MapsRead)
	require.Empty(t, tr.later)
	tr.leave(pid)
	_, err = procmaps.StartTime("/proc", pid)
	require.NoError(t, err)
}

func TestFewFilesAreAttachedPointByPoint(t *testing.T) {
	tr := &Tracer{state: newState()}
	now := time.Now()
	for range pointsMinute {
		require.True(t, tr.mayByPoint(now))
	}
	require.False(t, tr.mayByPoint(now.Add(59*time.Second)))
	require.True(t, tr.mayByPoint(now.Add(time.Minute)))
}
