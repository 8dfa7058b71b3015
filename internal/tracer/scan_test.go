// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procevents"
)

// Where events report what processes do, a machine with many is scanned less often: scans take no more than a
// share of a core. Without events, and after some were lost, every tick scans.
func TestScansOfManyProcessesAreRare(t *testing.T) {
	const tick = time.Second
	scans := func(tr *Tracer, processes int) (n int) {
		for now, end := time.Unix(0, 0), time.Unix(60, 0); now.Before(end); now = now.Add(tick) {
			if tr.scanIsDue(now) {
				n++
				tr.nextScan = nextScan(now.Add(30*time.Millisecond), processes, tick)
			}
		}
		return n
	}
	for processes, want := range map[int]int{10: 60, 3000: 60, 8000: 30, 1_000_000: 12} {
		tr := &Tracer{events: &procevents.Reader{}}
		require.Equal(t, want, scans(tr, processes), "of %d processes in a minute", processes)
		tr.rescanAll = true
		require.Equal(t, 60, scans(tr, processes), "after a loss")
		require.Equal(t, 60, scans(&Tracer{}, processes), "without events")
	}
}

// The end of a process is reported before its start, by another processor, or not at all: its pid, which another process
// may get, is not selected for ever.
func TestAPidThatIsGoneIsNotSelected(t *testing.T) {
	const gone, running = 4711, 7
	selected, ended := map[uint32]bool{gone: true, running: true}, 0
	tr := &Tracer{state: newState(), cfg: Config{
		ProcFS: t.TempDir(), PIDs: []uint32{running},
		Select: func(pid uint32, yes bool) error { selected[pid] = yes; return nil },
		Ended:  func() { ended++ },
	}}
	tr.cfg.setDefaults()
	tr.events = &procevents.Reader{}
	tr.selected[running] = 0
	dir := filepath.Join(tr.cfg.ProcFS, "7")
	require.NoError(t, os.Mkdir(dir, 0o755))

	tr.handle(procevents.Event{Kind: procevents.Exit, PID: gone})
	tr.handle(procevents.Event{Kind: procevents.Fork, PID: gone, Parent: running})
	tr.scan()
	require.Equal(t, map[uint32]bool{gone: false, running: true}, selected)
	require.Zero(t, ended)
	require.NoError(t, os.Remove(dir))
	tr.scan()
	require.Equal(t, map[uint32]bool{gone: false, running: false}, selected)
	require.Equal(t, 1, ended)
}

// What was read of a process is in doubt as soon as it is reported to have mapped something, and for all processes where
// reports were lost.
func TestMappingsAreInDoubtOnceTheyChange(t *testing.T) {
	tr := &Tracer{state: newState(), queue: make(chan []procevents.Event, 1)}
	tr.cfg.setDefaults()
	pid := uint32(os.Getpid())
	tr.processes[pid] = &process{files: map[fileKey]mapped{{}: {}}}
	var at uint64
	read := func() {
		t.Helper()
		s, err := tr.cfg.Maps.Snapshot(pid)
		require.NoError(t, err)
		at = s.Mappings[0].Start
	}
	isFinal := func() bool {
		_, _, isFinal := tr.cfg.Maps.FindSince(pid, at, time.Now())
		return isFinal
	}
	read()
	require.True(t, isFinal())
	tr.enqueue([]procevents.Event{{Kind: procevents.Map, PID: pid, Path: "/a.so"}})
	require.False(t, isFinal())
	read()
	require.True(t, isFinal())
	tr.handle(procevents.Event{Kind: procevents.Lost, Count: 3})
	require.False(t, isFinal())
	require.EqualValues(t, 3, tr.stats.Lost)
	require.True(t, tr.rescanAll)
}
