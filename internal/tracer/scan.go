// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"maps"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

const (
	// scanPerProcess is the least pause between scans for each process that exists. To list a process
	// and to compare it takes 3 to 4 µs, so that scans of up to 16,000 take about 1 % of a core.
	scanPerProcess = 300 * time.Microsecond
	// maxScanPause bounds how late a child that runs its parent's program is reported, and a process that
	// was put off is read, on a machine with very many.
	maxScanPause = 5 * time.Second
)

// nextScan is when to scan again after a scan of so many processes, at the tick of the interval that is nearest.
func nextScan(now time.Time, processes int, interval time.Duration) time.Time {
	return now.Add(min(time.Duration(processes)*scanPerProcess, maxScanPause) - interval/2)
}

// scanIsDue reports whether to scan. Where no event reports what processes do, or some were lost, it does not
// wait: then libraries are found by scans alone.
func (t *Tracer) scanIsDue(now time.Time) bool {
	return t.events == nil || t.rescanAll || !now.Before(t.nextScan)
}

// scan is the safety net: it finds processes that no event reported, and those
// that are gone.
func (t *Tracer) scan() {
	pids, err := t.pids()
	if err != nil {
		t.cfg.Warn("processes cannot be listed: " + err.Error())
		return
	}
	now := time.Now()
	all := t.rescanAll
	t.rescanAll = false
	t.nextScan = nextScan(now, len(pids), t.cfg.ScanInterval)
	isFirst := len(t.processes) == 0
	for pid := range pids {
		p := t.processes[pid]
		switch {
		case !t.chosen(pid):
			// With events, the fork has chosen it already.
			if (all || t.events == nil) && t.isSelected(t.parent(pid)) {
				t.choose(pid, true)
				t.inspect(pid, 0)
			}
		case p == nil:
			if isFirst {
				t.inspect(pid, 0)
			} else if !t.look(pid) {
				break
			}
			// A later one was forked, runs the program of its parent, and has mapped what that uses.
			if p = t.processes[pid]; isFirst || p == nil || len(p.files) == 0 {
				t.predict(pid)
			}
		case t.isLater(pid), all, (t.events == nil || errors.Is(p.err, procmaps.ErrStuck)) && now.After(p.next):
			t.look(pid)
		default:
			t.attachLoaded(p)
		}
	}
	for pid := range t.processes {
		if !pids[pid] {
			t.leave(pid)
			t.cfg.Maps.Exited(pid)
		}
	}
	for pid := range t.selected {
		if !pids[pid] {
			t.choose(pid, false)
		}
	}
	t.endLater()
	t.spent.ForgetPaid(now)
	t.searched.ForgetPaid(now)
	maps.DeleteFunc(t.later, func(pid uint32, _ procmaps.Tenant) bool { return !pids[pid] })
	if isFirst {
		t.searched.Clear()
		t.spent.Clear() // all the processes of the machine are not what one has caused
	}
	t.detachUnused(now)
	t.relinkIncomplete()
}
