// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// frameMarks sets a mark when traced calls begin to have a Python function on their stack. The
// zero value sets none.
type frameMarks struct {
	pattern string
	seen    map[profile.RowID]frameRow // rows of the last interval
	current map[profile.RowID]frameRow
	// isActive: calls of this interval had the function; was: those of the one before.
	isActive, was bool
	where         string // the frame, of the first such row
	// calling are the processes of such rows in this interval, pids those of the one before.
	calling, pids []uint32
}

// frameRow has the frame and the work of a row.
type frameRow struct {
	frame string // empty: the function is not on its stack
	work  int64
}

// checkFrame refuses a pattern that matches nothing.
func checkFrame(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || strings.TrimSpace(pattern) == "" {
		return fmt.Errorf("--%s %q: want a function of Python, such as Trainer.save_checkpoint or *.save_checkpoint", paramFrame, pattern)
	}
	return nil
}

// see takes in a row of this interval.
func (f *frameMarks) see(id profile.RowID, row profile.Row) {
	if f.pattern == "" {
		return
	}
	before, known := f.seen[id]
	if !known {
		before.frame = f.find(row.Stack)
	}
	// What a call did; not what freed memory that it had allocated.
	work := row.Values.AllocObjects + row.Values.Calls + row.Values.Samples
	if before.frame != "" && work > before.work {
		if !f.isActive {
			f.isActive, f.where = true, before.frame
		}
		if !slices.Contains(f.calling, row.Process.PID) {
			f.calling = append(f.calling, row.Process.PID)
		}
	}
	if f.current == nil {
		f.current = map[profile.RowID]frameRow{}
	}
	f.current[id] = frameRow{before.frame, work}
}

// find returns the innermost frame whose function matches; empty: none.
func (f *frameMarks) find(s stack.Stack) string {
	for _, frame := range s {
		if frame.Kind != stack.KindPython {
			continue
		}
		if ok, _ := path.Match(f.pattern, frame.Function); ok {
			return frame.Label()
		}
	}
	return ""
}

// end closes an interval and reports whether a mark is due: the function is on a stack and was
// not in the interval before.
func (f *frameMarks) end() bool {
	due := f.isActive && !f.was
	f.was, f.isActive = f.isActive, false
	f.pids, f.calling = f.calling, nil
	f.seen, f.current = f.current, nil
	return due
}
