// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Frames makes rows of what the driver counts for a process beyond what the
// process's own rows explain, so that a flame graph adds up to nvidia-smi's number.
// It is not safe for concurrent use.
type Frames struct {
	open      func() (Library, error)
	processes Processes

	library Library
	tracker tracker
	latest  []Breakdown
}

// NewFrames returns Frames that are to be started.
func NewFrames(open func() (Library, error), processes Processes) *Frames {
	return &Frames{open: open, processes: processes}
}

// Start opens the library, which is an error if there is none: the user asked
// for it. Call it before the probes are attached.
func (f *Frames) Start() error {
	library, err := f.open()
	if err != nil {
		return fmt.Errorf("ask the driver for its processes: %w", err)
	}
	attached := f.processes.Now() + settle
	f.library = library
	f.tracker = tracker{processes: map[uint64]*history{}, born: func(pid uint32) bool {
		return f.processes.Start(pid) > attached
	}}
	return nil
}

// See takes all rows of an interval. The more often, the better is what is from
// before attach told apart from what came later without a row.
func (f *Frames) See(rows []profile.Row) {
	used := f.library.Processes()
	byPID := map[uint32]held{}
	for _, r := range rows {
		addHeld(byPID, r.Process, r.Kind, r.InuseBytes)
	}
	// Only the processes that the run is about.
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
		rows = append(rows, b.Parts.Rows(b.Process)...)
	}
	return rows
}

// Close ends the use of the library. It is safe to call again.
func (f *Frames) Close() {
	if f.library != nil {
		f.library.Close()
		f.library = nil
	}
}
