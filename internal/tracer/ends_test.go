// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procevents"
)

// putProcess writes a process of a state, a start and so many threads.
func putProcess(t *testing.T, procfs string, pid int, state string, start, threads int) {
	t.Helper()
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	require.NoError(t, os.RemoveAll(dir))
	for n := range threads {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "task", strconv.Itoa(pid+n)), 0o755))
	}
	stat := fmt.Sprintf("%d (a) b) %s 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", pid, state, start)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
}

// The first thread's end is reported as that of the process, which continues if it has others.
func TestTheEndOfTheFirstThreadEndsNoProcess(t *testing.T) {
	const pid = 4711
	ended := 0
	tr := &Tracer{state: newState(), cfg: Config{
		ProcFS: t.TempDir(), PIDs: []uint32{pid}, Ended: func() { ended++ }, Select: func(uint32, bool) error { return nil },
	}}
	tr.cfg.setDefaults()
	tr.events = &procevents.Reader{}
	putProcess(t, tr.cfg.ProcFS, pid, "S", 100, 2)
	tr.choose(pid, true)
	tr.processes[pid] = &process{pid: pid, start: 100}

	putProcess(t, tr.cfg.ProcFS, pid, "Z", 100, 2)
	exit := procevents.Event{Kind: procevents.Exit, PID: pid}
	tr.handle(exit)
	require.True(t, tr.isSelected(pid), "another thread continues")
	require.NotNil(t, tr.processes[pid])
	require.True(t, tr.endsSoon)
	putProcess(t, tr.cfg.ProcFS, pid, "R", 100, 1)
	tr.endLater()
	require.True(t, tr.isSelected(pid), "it has called execve, and is the first now")
	require.Zero(t, ended)

	putProcess(t, tr.cfg.ProcFS, pid, "Z", 100, 1)
	tr.endLater()
	require.False(t, tr.isSelected(pid), "its parent has not waited for it")
	require.Empty(t, tr.processes)
	require.Empty(t, tr.ending)
	require.Equal(t, 1, ended)
}

func TestAPidOfAnotherProcessHasEnded(t *testing.T) {
	const pid, parent = 4711, 7
	selected := []string{}
	tr := &Tracer{state: newState(), cfg: Config{ProcFS: t.TempDir(), PIDs: []uint32{parent}, Select: func(pid uint32, yes bool) error {
		selected = append(selected, fmt.Sprint(pid, yes))
		return nil
	}}}
	tr.cfg.setDefaults()
	putProcess(t, tr.cfg.ProcFS, parent, "S", 50, 1)
	putProcess(t, tr.cfg.ProcFS, pid, "S", 100, 2)
	tr.choose(parent, true)
	tr.choose(pid, true)
	tr.handle(procevents.Event{Kind: procevents.Exit, PID: pid}) // seen while it ends
	require.True(t, tr.ending[pid])
	putProcess(t, tr.cfg.ProcFS, pid, "S", 200, 1)
	tr.handle(procevents.Event{Kind: procevents.Fork, PID: pid, Parent: parent})
	require.Equal(t, []string{"7 true", "4711 true", "4711 false", "4711 true"}, selected)
	require.EqualValues(t, 200, tr.selected[pid])
	require.Empty(t, tr.ending)
}

// Go's syscall.Exec is called in any thread, as launchers do.
func TestAProcessWhoseFirstThreadEndsIsTraced(t *testing.T) {
	k := load(t)
	path := buildLibrary(t, t.TempDir())
	for _, command := range []string{"exec", "threads"} {
		t.Run(command, func(t *testing.T) {
			h := startHost(t)
			h.ask("open %s", path)
			var ends atomic.Int32
			_, rows := start(t, Config{
				Programs: k.programs, PIDs: []uint32{h.pid}, ScanInterval: 50 * time.Millisecond,
				Select: func(uint32, bool) error { return nil }, Ended: func() { ends.Add(1) },
			})
			rows.attached(t, h.pid)
			require.EqualValues(t, h.pid, h.ask("%s", command))
			time.Sleep(500 * time.Millisecond)
			require.Zero(t, ends.Load(), "it goes on")
			if command == "exec" {
				rows.mu.Lock()
				rows.all, rows.at = nil, nil
				rows.mu.Unlock()
				h.ask("open %s", path)
				rows.attached(t, h.pid)
			} else {
				h.ask("open %s", buildLibrary(t, t.TempDir())) // its mappings are not shown any more
				time.Sleep(500 * time.Millisecond)
				rows.mu.Lock()
				for _, row := range rows.all {
					require.NotEqual(t, StatusGone, row.Status, "its threads still use the library")
				}
				rows.mu.Unlock()
			}
			h.stop()
			require.Eventually(t, func() bool { return ends.Load() == 1 }, 30*time.Second, time.Millisecond)
		})
	}
}
