// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"maps"
	"runtime"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Reading the mappings of a process takes as long as it has many, and a process has them read with
// each library that it maps. Attaching the probes on demand to a process takes as long as many processes
// have mapped the library: the kernel visits all of them. What that costs is bounded, for each process
// and for each root directory, so that neither a process with 65,000 mappings that maps libraries all the
// time nor 8,000 processes that use the GPU take a core or delay others. Beyond, new libraries are found
// up to a scan later.

// newSpent bounds what a process costs: the start of a server that loads all of PyTorch takes a tenth
// of the burst.
func newSpent() throttle.Allowance {
	return throttle.Allowance{Burst: 200 * time.Millisecond, Share: 50}
}

// newRootSpent bounds what all processes of a root directory cost.
func newRootSpent() *throttle.Allowance {
	return &throttle.Allowance{Burst: 2 * time.Second, Share: 20}
}

// costOf estimates the time that reading so many mappings takes: on a machine at 2.5 GHz 35 ms for 65,000, measured by
// processor time, and 0.1 ms besides. Time by the clock would count the work of others.
func costOf(mappings int64) time.Duration {
	return 100*time.Microsecond + time.Duration(mappings)*550*time.Nanosecond
}

// fileCost is the time for reading the symbols of a new file and probing it.
const fileCost = 3 * time.Millisecond

// stuckCost is the time for which a read that does not end blocks the loop (procmaps.ErrStuck).
const stuckCost = 250 * time.Millisecond

// timed is the processor time that f takes, on one thread.
func timed(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := throttle.ThreadTime()
	f()
	return throttle.ThreadTime() - began
}

// take notes what a process has cost.
func (t *Tracer) take(p *process, cost time.Duration) {
	now := time.Now()
	p.spent.Take(cost, now)
	root := t.spent[p.root]
	if root == nil {
		root = newRootSpent()
		t.spent[p.root] = root
	}
	root.Take(cost, now)
}

// forgetPaid drops what root directories have cost that owe nothing any more: containers end, and others
// get a root of their own.
func (t *Tracer) forgetPaid(now time.Time) {
	maps.DeleteFunc(t.spent, func(_ rootKey, spent *throttle.Allowance) bool { return spent.IsPaid(now) })
}

// pause is how long not to read a process; p is nil for one that was not read yet.
func (t *Tracer) pause(pid uint32, p *process, now time.Time) time.Duration {
	if p == nil {
		if root := t.spent[t.rootOf(pid)]; root != nil {
			return root.Pause(now)
		}
		return 0
	}
	pause := p.spent.Pause(now)
	if root := t.spent[p.root]; root != nil {
		pause = max(pause, root.Pause(now))
	}
	return pause
}

// look inspects a process, now or, if it or its root directory has cost too much, with a later scan.
func (t *Tracer) look(pid uint32) {
	if t.pause(pid, t.processes[pid], time.Now()) > 0 {
		t.later[pid] = true
		t.stats.Later++
		return
	}
	delete(t.later, pid)
	t.inspect(pid)
}

// snapshotDirty reads again, for naming, what traced processes have mapped.
func (t *Tracer) snapshotDirty() {
	t.dirtyTimer = false
	for pid := range t.dirty {
		p := t.processes[pid]
		if p != nil && t.pause(pid, p, time.Now()) > 0 {
			continue // it is read at a later event
		}
		delete(t.dirty, pid)
		_, _ = t.cfg.Maps.Snapshot(pid)
		if p != nil {
			t.take(p, p.costs)
		}
	}
}

// pointsMinute is how many files a minute are attached to point by point where the kernel can attach
// all at once: it refuses all probes of a file for one that it does not take, and each of them alone
// takes milliseconds.
const pointsMinute = 4

// mayByPoint reports whether one more file may be.
func (t *Tracer) mayByPoint(now time.Time) bool {
	for len(t.byPoint) > 0 && now.Sub(t.byPoint[0]) >= time.Minute {
		t.byPoint = t.byPoint[1:]
	}
	if len(t.byPoint) >= pointsMinute {
		return false
	}
	t.byPoint = append(t.byPoint, now)
	return true
}
