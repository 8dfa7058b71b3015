// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"fmt"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Demands are the programs' requests for facts about processes: bpf/call/demand.h.
type Demands interface {
	// Read gives the zero Demand for a process that has requested nothing.
	Read(pid, fact uint32) (Demand, error)
	// Forget starts again: what is read next has happened since.
	Forget(pid, fact uint32) error
	// Wait returns nil once demands may have changed since it returned last, and an error when ctx ends.
	Wait(ctx context.Context) error
}

// Demand is that of a process for one fact, since Forget.
type Demand struct {
	Asked   uint64 // calls that missed the fact
	Learned uint64 // answers of its points that were new
	Idle    uint64 // answers since then that were not
}

const (
	// demandInterval is how often demands are read at most: a call that misses a fact waits
	// that long for the probes that teach it, if others have just been read.
	demandInterval = 100 * time.Millisecond
	// idleAnswers in a row without news end a window. More than the 2,543 calls of
	// cuCtxGetDevice in a training step of PyTorch, so that every thread that takes part
	// in the step has answered; they cost about 5 ms, once.
	idleAnswers = 4096
	// longestPause is between two windows that taught nothing.
	longestPause = time.Minute
	// maxWindows is how many are open at a time, and maxTenantWindows how many of one tenant. To attach a
	// probe, and to detach it, the kernel visits every process that has mapped the file: with 8,000 of
	// them and a window each, the end of a run took hours, in which nothing else could attach.
	maxWindows, maxTenantWindows = 512, 256
	// demandsAtOnce is how many demands are read in an interval, in turn, and as many of each tenant.
	demandsAtOnce = 512
	// closers is how many are closed at the same time; each takes a thread, and waits for others.
	closers = 8
)

// window is when the probes of a fact are attached to a process.
type window struct {
	process *process
	file    *file
	fact    uint32
	links   []link.Link // none: it is closed
	gone    bool        // the process has ended, or has unmapped the library
	// pause and notBefore keep windows apart that teach nothing.
	pause     time.Duration
	notBefore time.Time
}

// windows are those of all processes.
type windows struct {
	open     int
	byTenant map[procmaps.Tenant]*tenantWindows
	warned   bool
}

// tenantWindows are those of a tenant's processes. Which tenant a process belongs to is read once, so
// that what is counted here is subtracted here.
type tenantWindows struct {
	open int
	all  []*window // some of them gone
	next int       // in all, the one whose demand is read next
}

func (ws *windows) of(tenant procmaps.Tenant) *tenantWindows {
	mine := ws.byTenant[tenant]
	if mine == nil {
		mine = &tenantWindows{}
		ws.byTenant[tenant] = mine
	}
	return mine
}

func (ws *windows) add(w *window) {
	mine := ws.of(w.process.tenant)
	mine.all = append(mine.all, w)
}

func (ws *windows) hasRoom(tenant procmaps.Tenant) bool {
	return ws.open < maxWindows && ws.of(tenant).open < maxTenantWindows
}

func (ws *windows) opened(tenant procmaps.Tenant) {
	ws.open++
	ws.of(tenant).open++
}

func (ws *windows) closed(tenant procmaps.Tenant) {
	ws.open--
	ws.of(tenant).open--
}

// turns is how many intervals it takes until each window was due.
func (ws *windows) turns() int {
	most, share := 0, ws.share()
	for _, mine := range ws.byTenant {
		most = max(most, (len(mine.all)+share-1)/share)
	}
	return most
}

// share is how many demands of a tenant are read in an interval.
func (ws *windows) share() int { return max(1, demandsAtOnce/max(1, len(ws.byTenant))) }

// turn calls use for as many windows as are due in an interval, with the same number of each tenant.
func (ws *windows) turn(use func(*window)) {
	share := ws.share()
	for tenant, mine := range ws.byTenant {
		for range min(len(mine.all), share) {
			if mine.next >= len(mine.all) {
				mine.next = 0
			}
			w := mine.all[mine.next]
			if !w.gone {
				mine.next++
				use(w)
				continue
			}
			last := len(mine.all) - 1
			mine.all[mine.next] = mine.all[last]
			mine.all[last] = nil
			mine.all = mine.all[:last]
			if last == 0 {
				delete(ws.byTenant, tenant)
				break
			}
		}
	}
}

// openWindows attaches the probes on demand of a library that a process has just mapped:
// what it has done so far is not known.
func (t *Tracer) openWindows(p *process, m mapped) {
	for _, probe := range m.file.onDemand {
		if m.windows[probe.fact] == nil {
			w := &window{process: p, file: m.file, fact: probe.fact}
			m.windows[probe.fact] = w
			t.windows.add(w)
			t.openWindow(w)
		}
	}
}

func (t *Tracer) openWindow(w *window) {
	p, lib := w.process, w.file
	if lib.held == nil {
		return // it was overwritten; its probes are gone
	}
	if !t.windows.hasRoom(p.tenant) {
		w.delay(time.Now())
		if !t.windows.warned {
			t.windows.warned = true
			t.cfg.Warn(fmt.Sprintf("process %d and others of its container: devices or kernel names of their calls may be missing: "+
				"too many processes there use the GPU", p.pid))
		}
		return
	}
	var err error
	t.take(p, throttle.Timed(func() {
		var ex *link.Executable
		var done func()
		if ex, done, err = executable(lib.held); err != nil {
			return
		}
		defer done()
		if err = t.cfg.Demands.Forget(p.pid, w.fact); err == nil {
			w.links, err = t.linkFact(ex, lib, w.fact, p.pid)
		}
	}))
	if err != nil {
		w.links = nil
		w.delay(time.Now())
		if _, gone := procmaps.StartTime(t.cfg.ProcFS, p.pid); gone != nil {
			return
		}
		t.cfg.Warn(fmt.Sprintf("process %d: devices or kernel names of what it did before now may be missing: %v", p.pid, err))
		return
	}
	if len(w.links) > 0 {
		t.windows.opened(p.tenant)
	}
}

func (t *Tracer) linkFact(ex *link.Executable, f *file, fact uint32, pid uint32) ([]link.Link, error) {
	var probes []probe
	for _, p := range f.onDemand {
		if p.fact == fact {
			probes = append(probes, p)
		}
	}
	only := int(pid)
	if !selection.SamePIDs(t.cfg.ProcFS) {
		only = everyProcess
	}
	if f.mode == Multi {
		return t.linkMulti(ex, probes, only)
	}
	links, _, err := t.linkPerf(ex, probes, only)
	return links, err
}

// listen passes on, one at a time, that demands have changed.
func (t *Tracer) listen(ctx context.Context) {
	for {
		err := t.cfg.Demands.Wait(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.cfg.Warn(fmt.Sprintf("devices or kernel names of calls may be missing for up to %v: %v", t.cfg.ScanInterval, err))
			return
		}
		select {
		case t.demanded <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// meetDemands opens and closes windows.
func (t *Tracer) meetDemands(now time.Time) {
	t.windows.turn(func(w *window) { t.meetDemand(w, now) })
}

func (t *Tracer) meetDemand(w *window, now time.Time) {
	if len(w.links) == 0 && now.Before(w.notBefore) {
		return
	}
	p := w.process
	d, err := t.cfg.Demands.Read(p.pid, w.fact)
	switch {
	case err != nil:
		t.cfg.Warn(fmt.Sprintf("process %d: devices or kernel names may be missing: %v", p.pid, err))
		w.delay(now)
	case len(w.links) == 0:
		if d.Asked > 0 && !t.owes(p, now) {
			t.openWindow(w)
		}
	case d.Idle >= idleAnswers:
		t.closeWindow(w)
		_ = t.cfg.Demands.Forget(p.pid, w.fact) // what is requested from now on is another demand
		if d.Learned == 0 && d.Asked > 0 {
			w.delay(now) // it was requested, and this is not where the answer is
		} else {
			w.pause = 0
		}
	}
}

// delay doubles the time until the next window.
func (w *window) delay(now time.Time) {
	w.pause = min(max(2*w.pause, demandInterval), longestPause)
	w.notBefore = now.Add(w.pause)
}

// closeWindow detaches: in the background, for the kernel waits for running programs; and
// in the order of the links, each entry before its return.
func (t *Tracer) closeWindow(w *window) {
	links := w.links
	w.links = nil
	t.windows.closed(w.process.tenant)
	free := t.closers
	t.done.Go(func() {
		free <- struct{}{}
		defer func() { <-free }()
		for _, l := range links {
			l.Close()
		}
	})
}

// closeWindows is for a process that has ended, or has unmapped the library.
func (t *Tracer) closeWindows(p *process, m mapped) {
	for fact, w := range m.windows {
		w.gone = true
		if len(w.links) > 0 {
			t.closeWindow(w)
		}
		_ = t.cfg.Demands.Forget(p.pid, fact) // the map drops what is old by itself
	}
}
