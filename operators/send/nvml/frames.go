// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Frames makes rows of the bytes that the driver counts for a process and the process's
// own rows do not explain, so that a flame graph adds up to nvidia-smi's number. It is
// not safe for concurrent use.
type Frames struct {
	open      func() (Library, error)
	processes Processes

	library Library
	list    *query[[]ProcessMemory] // of library
	tracker tracker
	latest  []Breakdown
	// contexts are rows of those that exist, by pid.
	contexts map[uint32][]profile.Row
}

// NewFrames returns Frames that are to be started.
func NewFrames(open func() (Library, error), processes Processes) *Frames {
	return &Frames{open: open, processes: processes}
}

// Start opens the library, which is an error if there is none: the user requested it.
// Call it before the probes are attached.
func (f *Frames) Start() error {
	library, err := openInTime(f.open)
	if err != nil {
		return fmt.Errorf("query the driver for its processes: %w", err)
	}
	attached := f.processes.Now() + settle
	f.library, f.list = library, &query[[]ProcessMemory]{ask: library.Processes}
	f.tracker = tracker{processes: map[uint64]*history{}, born: func(pid uint32) bool {
		return f.processes.Start(pid) > attached
	}}
	return nil
}

// See adds all rows of an interval. More frequent calls improve the distinction between
// memory from before attach and later memory without rows.
func (f *Frames) See(rows []profile.Row) {
	used, _, _ := f.list.get()
	byPID := map[uint32]held{}
	f.contexts = map[uint32][]profile.Row{}
	for _, r := range rows {
		if r.Kind == profile.KindContext && r.InuseObjects > 0 {
			f.contexts[r.Process.PID] = append(f.contexts[r.Process.PID], r)
		}
		addHeld(byPID, r.Process, r.Kind, r.InuseBytes)
	}
	// Only the processes of the run.
	mine := used[:0:0]
	for _, u := range used {
		if _, ok := byPID[u.PID]; ok {
			mine = append(mine, u)
		}
	}
	f.latest = f.tracker.update(mine, byPID, f.processes.Process)
}

// Rows are those of the last interval.
func (f *Frames) Rows() []profile.Row {
	var rows []profile.Row
	for _, b := range f.latest {
		rows = append(rows, b.Parts.Rows(b.Process, f.contexts[b.Process.PID]...)...)
	}
	return rows
}

// Close ends the use of the library, which stays open if the driver does not answer. It is safe to
// call again.
func (f *Frames) Close() {
	if f.library != nil {
		f.list.close(f.library.Close)
		f.library = nil
	}
}
