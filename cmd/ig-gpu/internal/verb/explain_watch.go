// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"slices"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

// watch is for how long processes were watched.
type watch struct {
	duration      time.Duration // as planned
	watched       time.Duration // until it was interrupted, or the last process ended
	isInterrupted bool
	began         time.Time
	attached      time.Time                // zero: not known
	ended         map[uint32]time.Duration // by process that ended: how far into the watch
}

// started is called when the probes are attached.
func (f *facts) started(operators.GadgetContext) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attached = time.Now()
	return nil
}

// begin is when the watch began: nothing is seen before the probes are attached.
func (f *facts) begin() time.Time {
	if !f.attached.IsZero() {
		return f.attached
	}
	return f.began
}

// finish notes how the watch ended, after the gadgets have.
func (f *facts) finish(now time.Time, isInterrupted bool, ended map[uint32]time.Time) {
	begin := f.begin()
	into := func(at time.Time) time.Duration { return min(max(at.Sub(begin), 0), f.duration) }
	if f.isInterrupted = isInterrupted; isInterrupted {
		f.watched = into(now)
	}
	last := time.Duration(0)
	for pid, at := range ended {
		f.ended[pid] = into(at)
		last = max(last, f.ended[pid])
	}
	if f.isOver() {
		f.watched = min(f.watched, last)
	}
}

// isOver reports whether all processes have ended.
func (f *facts) isOver() bool { return len(f.ended) > 0 && len(f.alive()) == 0 }

// alive are the processes that have not ended.
func (f *facts) alive() []uint32 {
	return slices.DeleteFunc(slices.Clone(f.pids), func(pid uint32) bool {
		_, hasEnded := f.ended[pid]
		return hasEnded
	})
}

// howLong says for how long a process was watched.
func (f *facts) howLong(pid uint32) string {
	if after, ok := f.ended[pid]; ok {
		return fmt.Sprintf("it ended %s into the watch", tenths(after))
	}
	if f.isInterrupted {
		return "the watch was " + f.interruption()
	}
	return fmt.Sprintf("it was watched for %s", f.duration)
}

func (f *facts) interruption() string {
	return fmt.Sprintf("interrupted after %s of %s", tenths(f.watched), f.duration)
}

// whyNotCompared says why it is unknown what grew.
func (f *facts) whyNotCompared() string {
	switch {
	case f.isOver() && len(f.pids) == 1:
		return fmt.Sprintf("The process ended %s into the watch of %s.", tenths(f.watched), f.duration)
	case f.isOver():
		return fmt.Sprintf("The last process ended %s into the watch of %s.", tenths(f.watched), f.duration)
	case f.isInterrupted:
		return "The watch was " + f.interruption() + "."
	}
	return "The rows were read too rarely on this busy machine: watch for longer."
}

// tenths is a time as people read it.
func tenths(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
