// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Reading the mappings of a process takes as long as it has many, and a process has them read with
// each library that it maps. Attaching the probes on demand to a process takes as long as many processes
// have mapped the library: the kernel visits all of them. Looking for the libraries of a new program takes
// as long as it names directories and these have files. What that costs is bounded, for each process and
// for each tenant, so that neither a process with 65,000 mappings that maps libraries all the time, nor
// 8,000 processes that use the GPU, nor programs that name a thousand directories take a core or delay
// others. Beyond, new libraries are found up to a scan later.

// newSpent bounds what a process costs: the start of a server that loads all of PyTorch takes a tenth
// of the burst.
func newSpent() throttle.Allowance {
	return throttle.Allowance{Burst: 200 * time.Millisecond, Share: 50}
}

// newTenantsSpent bounds what all processes of a tenant cost: the start of a job of 200 takes a fifth of the burst.
func newTenantsSpent() throttle.Allowances[procmaps.Tenant] {
	return throttle.Allowances[procmaps.Tenant]{Burst: 500 * time.Millisecond, Share: 50}
}

// newSearched bounds what searches for a tenant's libraries cost besides: one takes 1 to 3 ms, and one is enough for
// all processes with the same directories. Without it they are found when they are mapped.
func newSearched() throttle.Allowances[procmaps.Tenant] {
	return throttle.Allowances[procmaps.Tenant]{Burst: 500 * time.Millisecond, Share: 50}
}

const (
	// fileCost is the time for reading the symbols of a new file and probing it, openCost for finding
	// that a file is known, firstCost for a process with the first such file.
	fileCost  = 3 * time.Millisecond
	openCost  = 50 * time.Microsecond
	firstCost = 200 * time.Microsecond
)

// stuckCost is the time for which a read that does not end blocks the loop (procmaps.ErrStuck).
const stuckCost = 250 * time.Millisecond

// foundCost is the time for the libraries that a process has.
func foundCost(libraries int, isFirst bool) time.Duration {
	cost := time.Duration(libraries) * openCost
	if isFirst {
		cost += firstCost
	}
	return cost
}

// prepareCost is the time of Config.Prepare.
const prepareCost = 200 * time.Microsecond

// take notes what a process has cost.
func (t *Tracer) take(p *process, cost time.Duration) {
	now := time.Now()
	p.spent.Take(cost, now)
	t.spent.Take(p.tenant, cost, now)
}

// pause is how long not to read a process; p is nil for one that was not read yet, whose tenant is known
// if it was put off.
func (t *Tracer) pause(pid uint32, p *process, now time.Time) (time.Duration, procmaps.Tenant) {
	if p != nil {
		return max(p.spent.Pause(now), t.spent.Pause(p.tenant, now)), p.tenant
	}
	tenant, known := t.later[pid]
	if !known {
		tenant = t.tenantOf(pid)
	}
	return t.spent.Pause(tenant, now), tenant
}

// look inspects a process, now or, if it or its tenant has cost too much, with a later scan: false.
func (t *Tracer) look(pid uint32) bool {
	p := t.processes[pid]
	pause, tenant := t.pause(pid, p, time.Now())
	if pause > 0 {
		t.later[pid] = tenant
		t.stats.Later++
		return false
	}
	if p != nil || t.isLater(pid) {
		tenant = 0 // that of then: the pid may be another process's now
	}
	delete(t.later, pid)
	t.inspect(pid, tenant)
	return true
}

// isLater reports whether a process was put off.
func (t *Tracer) isLater(pid uint32) bool {
	_, is := t.later[pid]
	return is
}

// owes reports whether a process is not to be read now.
func (t *Tracer) owes(p *process, now time.Time) bool {
	pause, _ := t.pause(p.pid, p, now)
	return pause > 0
}

// prepare calls Config.Prepare for a process, or for one that it has started.
func (t *Tracer) prepare(p *process, pid uint32) {
	if t.cfg.Prepare == nil || t.owes(p, time.Now()) {
		return
	}
	t.take(p, prepareCost)
	t.cfg.Prepare(pid)
}

// snapshotDirty reads again, for naming, what traced processes have mapped.
func (t *Tracer) snapshotDirty() {
	t.dirtyTimer = false
	for pid := range t.dirty {
		p := t.processes[pid]
		if p != nil && t.owes(p, time.Now()) {
			continue // it is read at a later event
		}
		delete(t.dirty, pid)
		if t.ending[pid] {
			continue // procfs shows no mappings any more; those from before name what they can
		}
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
