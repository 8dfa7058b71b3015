// SPDX-License-Identifier: Apache-2.0

// Package tracer finds the libraries that a gadget wants probed in the address
// spaces of all processes, and attaches its generic programs to them.
//
// It attaches to files, not to processes: one attachment serves every process
// that maps the file, also one that starts later, from its first instruction
// on. Files are found in /proc/PID/maps, so that wheels, other mount namespaces
// and deleted files are seen too, and in the places where a starting process
// will look for them. It knows nothing of Inspektor Gadget.
package tracer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf/features"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procevents"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
)

// Tracer attaches programs until Stop.
type Tracer struct {
	cfg       Config
	mode      Mode
	modeError error // why Auto chose Perf
	libraries []string
	beside    map[string]bool

	cancel context.CancelFunc
	done   sync.WaitGroup
	queue  chan []procevents.Event
	lost   chan uint64
	// demanded has something when demands have changed.
	demanded chan struct{}
	events   *procevents.Reader
	alive    sync.Map // pid → nothing: processes with a traced library

	mu sync.Mutex // guards what follows; held by one step of the loop
	intermittent
	state
	stats Stats
	// wasAttached: something was, once, that a user wants to know of.
	wasAttached bool
}

// New checks the configuration. Nothing is read or attached yet.
func New(cfg Config) (*Tracer, error) {
	if len(cfg.Points) == 0 {
		return nil, errors.New("no functions to attach to")
	}
	if cfg.Demands == nil && slices.ContainsFunc(cfg.Points, func(p Point) bool { return p.Fact != 0 }) {
		return nil, errors.New("functions that are probed on demand need the demands of processes")
	}
	cfg.setDefaults()
	t := &Tracer{cfg: cfg, queue: make(chan []procevents.Event, 256), lost: make(chan uint64, 1), demanded: make(chan struct{})}
	t.state = newState()
	names := map[string]bool{}
	var exit, sleeps bool
	for _, p := range cfg.Points {
		names[p.Library] = true
		exit = exit || p.Exit
		sleeps = sleeps || p.EntrySleeps
	}
	for library := range names {
		if cfg.USDT.has(library) {
			return nil, fmt.Errorf("library %s has functions and static probes", library)
		}
	}
	for _, p := range cfg.USDT.Probes {
		names[p.Library] = true
	}
	t.libraries = slices.Sorted(maps.Keys(names))
	t.beside = besides(cfg.Points)

	if err := t.chooseMode(exit, sleeps); err != nil {
		return nil, err
	}
	return t, nil
}

// chooseMode sets how programs are attached: exit and sleeps are whether any point has a
// return probe, and an entry that sleeps.
func (t *Tracer) chooseMode(exit, sleeps bool) error {
	p := t.cfg.Programs
	haveMulti := p.EnterMulti != nil && (p.ExitMulti != nil || !exit) && (p.SleepingEnterMulti != nil || !sleeps)
	havePerf := (p.Enter != nil || p.EnterPoint != nil) && (p.Exit != nil || !exit) && (p.SleepingEnter != nil || !sleeps)
	switch t.cfg.Mode {
	case Auto, "":
		t.mode = Perf
		if haveMulti {
			if t.modeError = features.HaveBPFLinkUprobeMulti(); t.modeError == nil {
				t.mode = Multi
			}
		}
	case Multi, Perf:
		t.mode = t.cfg.Mode
	default:
		return fmt.Errorf("unknown attach mode %q: want auto, multi or perf", t.cfg.Mode)
	}
	if (t.mode == Multi && !haveMulti) || (t.mode == Perf && !havePerf) {
		return fmt.Errorf("the gadget has no programs for attach mode %s", t.mode)
	}
	return nil
}

// Start attaches to what is mapped now and continues in the background until
// Stop. The errors that come back are those that a user has to act on: missing
// privileges, a process that does not exist or cannot be read.
func (t *Tracer) Start(ctx context.Context) error {
	if err := checkPrivileges(); err != nil {
		return err
	}
	ctx, t.cancel = context.WithCancel(ctx)
	// Recording starts before the first look, so that nothing falls between.
	if selection.SamePIDs(t.cfg.ProcFS) {
		r, err := procevents.Open()
		if err != nil {
			t.cfg.Warn(fmt.Sprintf("libraries are found up to %v late: no process events: %v", t.cfg.ScanInterval, err))
		} else {
			t.events, t.stats.Events = r, true
		}
	} else {
		t.cfg.Warn(fmt.Sprintf("libraries are found up to %v late: running in another PID namespace than %s (hostPID)",
			t.cfg.ScanInterval, t.cfg.ProcFS))
	}
	if t.events != nil {
		t.done.Add(1)
		go func() {
			defer t.done.Done()
			if err := t.events.Run(ctx, t.interesting, t.enqueue); err != nil {
				t.cfg.Warn("libraries may be found late: " + err.Error())
			}
		}()
	}
	t.mu.Lock()
	err := t.selectInitial()
	if err == nil {
		t.scan()
		err = t.checkSelected()
	}
	t.mu.Unlock()
	if err != nil {
		t.Stop()
		return err
	}
	t.done.Go(func() { t.loop(ctx) })
	if t.cfg.Demands != nil {
		t.done.Go(func() { t.listen(ctx) })
	}
	return nil
}

// Halt ends the search for libraries and waits; what is attached stays so. It
// may be called more than once, and without Start.
func (t *Tracer) Halt() {
	if t.cancel == nil {
		return
	}
	t.cancel()
	t.done.Wait()
}

// Stop detaches everything and waits, which with perf events takes seconds: for
// each, the kernel waits for running programs, one after the other, whichever thread
// closes them (106 events: 9 s on 6.18). It may be called more than once, and
// without Start.
func (t *Tracer) Stop() {
	if t.cancel == nil {
		return
	}
	t.Halt()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events != nil {
		t.events.Close()
		t.events = nil
	}
	t.detachAll()
	t.done.Wait()
}

// Stats returns the present counts.
func (t *Tracer) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Processes = len(t.processes)
	for _, p := range t.processes {
		if p.err != nil {
			s.Unreadable++
		}
		for _, f := range p.files {
			switch {
			case !f.file.attached():
			case t.cfg.Visible(f.row):
				s.Attached++
			default:
				s.Hidden++
			}
		}
	}
	for _, f := range t.files {
		if f.attached() {
			s.Files++
		}
	}
	return s
}

// ReportAgain reports the state of those attachments for which want holds
// and which have become visible.
func (t *Tracer) ReportAgain(want func(Attachment) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.processes {
		t.attachWaiting(p)
		for _, m := range p.files {
			if want(m.row) && m.file.loading.IsZero() {
				t.report(m.row)
			}
		}
	}
}

func (t *Tracer) report(a Attachment) {
	if t.cfg.Visible(a) {
		t.wasAttached = t.wasAttached || a.Status == StatusAttached
		t.cfg.Report(a)
	}
}
