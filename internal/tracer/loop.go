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
	select {
	case t.queue <- slices.Clone(batch):
	default:
		select {
		case t.lost <- uint64(len(batch)):
		default:
		}
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
	warn := time.NewTimer(t.cfg.WarnAfter)
	defer warn.Stop()
	asked := time.NewTicker(demandInterval)
	defer asked.Stop()
	if t.cfg.Demands == nil {
		asked.Stop()
	}
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
			t.mu.Unlock()
		case n := <-t.lost:
			t.mu.Lock()
			t.stats.Lost += n
			t.rescanAll = true
			t.mu.Unlock()
		case <-soon.C:
			t.mu.Lock()
			t.snapshotDirty()
			t.mu.Unlock()
			snapshots = time.Now()
		case now := <-asked.C:
			t.mu.Lock()
			t.meetDemands(now)
			t.mu.Unlock()
		case now := <-tick.C:
			t.mu.Lock()
			if t.scanIsDue(now) {
				t.scan()
			}
			t.mu.Unlock()
		case <-warn.C:
			t.warnIfNothing()
			warn.Reset(warnEvery)
		}
	}
}
