// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Demands are the programs' requests for facts about processes: bpf/call/demand.h.
type Demands interface {
	// Read gives the zero Demand for a process that has requested nothing.
	Read(pid, fact uint32) (Demand, error)
	// Forget starts again: what is read next has happened since.
	Forget(pid, fact uint32) error
}

// Demand is that of a process for one fact, since Forget.
type Demand struct {
	Asked   uint64 // calls that missed the fact
	Learned uint64 // answers of its points that were new
	Idle    uint64 // answers since then that were not
}

const (
	// demandInterval is how often demands are read: a call that misses a fact waits
	// that long at most for the probes that teach it.
	demandInterval = 100 * time.Millisecond
	// idleAnswers in a row without news end a window. More than the 2,543 calls of
	// cuCtxGetDevice in a training step of PyTorch, so that every thread that takes part
	// in the step has answered; they cost about 5 ms, once.
	idleAnswers = 4096
	// longestPause is between two windows that taught nothing.
	longestPause = time.Minute
	// maxWindows is how many are open at a time, and maxRootWindows how many of one root directory. To
	// attach a probe, and to detach it, the kernel visits every process that has mapped the file: with
	// 8,000 of them and a window each, the end of a run took hours, in which nothing else could attach.
	maxWindows, maxRootWindows = 512, 256
	// demandsAtOnce is how many demands are read in an interval: some of them, where there are more.
	demandsAtOnce = 512
	// closers is how many are closed at the same time; each takes a thread, and waits for others.
	closers = 8
)

// window is when the probes of a fact are attached to a process.
type window struct {
	links []link.Link // none: it is closed
	// asked is the demand that the last window has left; pause and notBefore keep
	// windows apart that teach nothing.
	asked     uint64
	pause     time.Duration
	notBefore time.Time
}

// windowCount is how many windows are open.
type windowCount struct {
	all    int
	byRoot map[rootKey]int
	warned bool
}

func (c *windowCount) hasRoom(root rootKey) bool {
	return c.all < maxWindows && c.byRoot[root] < maxRootWindows
}

func (c *windowCount) opened(root rootKey) {
	c.all++
	c.byRoot[root]++
}

func (c *windowCount) closed(root rootKey) {
	c.all--
	if c.byRoot[root]--; c.byRoot[root] == 0 {
		delete(c.byRoot, root)
	}
}

// openWindows attaches the probes on demand of a library that a process has just mapped:
// what it has done so far is not known.
func (t *Tracer) openWindows(p *process, m mapped) {
	for _, probe := range m.file.onDemand {
		if m.windows[probe.fact] == nil {
			m.windows[probe.fact] = &window{}
			t.openWindow(p, m, probe.fact)
		}
	}
}

func (t *Tracer) openWindow(p *process, m mapped, fact uint32) {
	w := m.windows[fact]
	if m.file.fd < 0 {
		return // it was overwritten; its probes are gone
	}
	if !t.windows.hasRoom(p.root) {
		w.delay(time.Now())
		if !t.windows.warned {
			t.windows.warned = true
			t.cfg.Warn(fmt.Sprintf("process %d and others of its container: devices or kernel names of their calls may be missing: "+
				"too many processes there use the GPU", p.pid))
		}
		return
	}
	var err error
	t.take(p, timed(func() {
		var ex *link.Executable
		if ex, err = link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", m.file.fd)); err != nil {
			return
		}
		if err = t.cfg.Demands.Forget(p.pid, fact); err == nil {
			w.links, err = t.linkFact(ex, m.file, fact, p.pid)
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
		t.windows.opened(p.root)
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
	if !samePIDs(t.cfg.ProcFS) {
		only = everyProcess
	}
	if f.mode == Multi {
		return t.linkMulti(ex, probes, only)
	}
	links, _, err := t.linkPerf(ex, probes, only)
	return links, err
}

// meetDemands opens and closes windows. The order of a map is another one each time.
func (t *Tracer) meetDemands(now time.Time) {
	n := 0
	for _, p := range t.processes {
		for _, m := range p.files {
			for fact, w := range m.windows {
				t.meetDemand(p, m, fact, w, now)
				n++
			}
		}
		if n >= demandsAtOnce {
			return
		}
	}
}

func (t *Tracer) meetDemand(p *process, m mapped, fact uint32, w *window, now time.Time) {
	if len(w.links) == 0 && now.Before(w.notBefore) {
		return
	}
	d, err := t.cfg.Demands.Read(p.pid, fact)
	switch {
	case err != nil:
		t.cfg.Warn(fmt.Sprintf("process %d: devices or kernel names may be missing: %v", p.pid, err))
		w.delay(now)
	case len(w.links) == 0:
		if d.Asked > w.asked && t.pause(p.pid, p, now) == 0 {
			t.openWindow(p, m, fact)
		}
	case d.Idle >= idleAnswers:
		t.closeWindow(p.root, w)
		w.asked = d.Asked
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
func (t *Tracer) closeWindow(root rootKey, w *window) {
	links := w.links
	w.links = nil
	t.windows.closed(root)
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
		if len(w.links) > 0 {
			t.closeWindow(p.root, w)
		}
		_ = t.cfg.Demands.Forget(p.pid, fact) // the map drops what is old by itself
	}
}
