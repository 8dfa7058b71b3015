// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procevents"
)

// enqueue hands events to the loop. When that is far behind, it counts them as lost, and
// the loop reads all processes instead.
func (t *Tracer) enqueue(batch []procevents.Event) {
	for _, e := range batch {
		if e.Kind == procevents.Map {
			t.cfg.Maps.Changed(e.PID) // at once: the loop may be attaching for seconds
		}
	}
	select {
	case t.queue <- slices.Clone(batch):
	default:
		select {
		case t.lost <- uint64(len(batch)):
		default:
		}
	}
}

// lose counts events that were lost: any process may have done anything, and all are read again.
func (t *Tracer) lose(n uint64) {
	t.stats.Lost += n
	t.rescanAll = true
	for pid := range t.processes {
		t.cfg.Maps.Changed(pid)
	}
}

const (
	// snapshotDelay lets a process map what it maps in one go before its
	// mappings are read again for naming.
	snapshotDelay = 100 * time.Millisecond
	// snapshotEvery bounds how often that is, for processes that keep mapping:
	// reading takes about 1 ms.
	snapshotEvery = time.Second
)

func (t *Tracer) loop(ctx context.Context) {
	tick := time.NewTicker(t.cfg.ScanInterval)
	defer tick.Stop()
	soon := time.NewTimer(time.Hour)
	soon.Stop()
	defer soon.Stop()
	var snapshots time.Time // when they were last taken
	ends := time.NewTimer(time.Hour)
	ends.Stop()
	defer ends.Stop()
	warn := time.NewTimer(t.cfg.WarnAfter)
	defer warn.Stop()
	demands := newDemandTimer(t.demanded)
	defer demands.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case batch := <-t.queue:
			t.mu.Lock()
			for _, e := range batch {
				t.handle(e)
			}
			if len(t.dirty) > 0 && !t.dirtyTimer {
				t.dirtyTimer = true
				soon.Reset(max(snapshotDelay, snapshotEvery-time.Since(snapshots)))
			}
			if t.endsSoon {
				t.endsSoon = false
				ends.Reset(endDelay)
			}
			t.mu.Unlock()
		case n := <-t.lost:
			t.mu.Lock()
			t.lose(n)
			t.mu.Unlock()
		case <-soon.C:
			t.mu.Lock()
			t.snapshotDirty()
			t.mu.Unlock()
			snapshots = time.Now()
		case <-ends.C:
			t.mu.Lock()
			t.endLater()
			t.mu.Unlock()
		case <-demands.changed:
			t.mu.Lock()
			demands.begin(t.windows.turns(), time.Now())
			t.mu.Unlock()
		case now := <-demands.timer.C:
			t.mu.Lock()
			t.meetDemands(now)
			t.mu.Unlock()
			demands.turned(now)
		case now := <-tick.C:
			t.mu.Lock()
			if t.scanIsDue(now) {
				t.scan()
			}
			t.meetDemands(now) // pauses end, and what could not be paid for then can now
			t.mu.Unlock()
		case <-warn.C:
			t.warnIfNothing()
			warn.Reset(warnEvery)
		}
	}
}

// demandTimer is when demands are read: each once after they have changed, in turns that are an interval apart.
type demandTimer struct {
	timer   *time.Timer
	source  <-chan struct{}
	changed <-chan struct{} // source, or nil until the turns are over
	left    int             // turns
	last    time.Time       // when the last turn was
}

func newDemandTimer(source <-chan struct{}) *demandTimer {
	d := &demandTimer{timer: time.NewTimer(time.Hour), source: source, changed: source}
	d.timer.Stop()
	return d
}

// begin is called when demands have changed, with the turns in which all are read.
func (d *demandTimer) begin(turns int, now time.Time) {
	if turns == 0 {
		return
	}
	d.changed, d.left = nil, turns
	d.timer.Reset(max(0, demandInterval-now.Sub(d.last)))
}

func (d *demandTimer) turned(now time.Time) {
	d.last = now
	if d.left--; d.left > 0 {
		d.timer.Reset(demandInterval)
		return
	}
	d.changed = d.source
}
