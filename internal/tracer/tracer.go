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
)

<<<<<<< HEAD
=======
// Point is a function to probe.
type Point struct {
	Library string // file name up to ".so"
	Symbol  string
	Cookie  uint32
	Exit    bool
	// EntrySleeps: the entry is for Programs.SleepingEnter.
	EntrySleeps bool
	// Fact, if not 0, is what the point teaches: it is probed in one process at a time,
	// while that lacks the fact. See Demands.
	Fact uint32
}

// Programs are the generic programs; the tracer does not close them. The perf
// pair or the multi pair may be nil.
type Programs struct {
	Enter, Exit           *ebpf.Program
	EnterMulti, ExitMulti *ebpf.Program
	// SleepingEnter are for points with EntrySleeps, whose cookies are of their own.
	SleepingEnter, SleepingEnterMulti *ebpf.Program
	// EnterPoint, instead of Enter, has a program for each point, by its cookie.
	// None of the programs then asks for cookies.
	EnterPoint map[uint32]*ebpf.Program
}

// Mode is how programs are attached.
type Mode string

const (
	// Auto is Multi where the kernel has it, else Perf.
	Auto Mode = "auto"
	// Multi attaches all points of a file at once (uprobe_multi, Linux 6.6).
	Multi Mode = "multi"
	// Perf attaches point by point. Cookies need Linux 5.15; see EnterPoint.
	Perf Mode = "perf"
)

// Status of an Attachment.
type Status string

const (
	StatusAttached   Status = "attached"
	StatusGone       Status = "gone"       // the process exited, or let go of the file
	StatusNoSymbols  Status = "no symbols" // the file exports none of the functions
	StatusNotELF     Status = "not an ELF file"
	StatusUnreadable Status = "unreadable"
	StatusFailed     Status = "failed" // the kernel refused
)

// Attachment is one library in one process.
type Attachment struct {
	PID     uint32
	MountNS uint64
	Comm    string
	Path    string
	BuildID string
	// Symbols is how many of the Wanted functions are probed. Functions at
	// the same address count, but are probed once, as the first of them.
	Symbols, Wanted int
	Mode            Mode
	// Note says where the probes are and what is unusual.
	Note   string
	Status Status
	Error  string
}

// Config of a Tracer.
type Config struct {
	ProcFS       string // default /proc
	Points       []Point
	Programs     Programs
	USDT         USDT
	Mode         Mode          // default Auto
	ScanInterval time.Duration // default 1 s
	// PIDs restricts the tracer to these processes and their descendants.
	PIDs []uint32
	// Select is told which processes are traced when PIDs is given, before
	// anything is attached, and again when one exits. May be nil.
	Select func(tgid uint32, selected bool) error
	// Ended is called when the last selected process has ended: nothing is left
	// to trace. May be nil; not called without PIDs.
	Ended func()
	// Prepare is called with a process before its first library is attached to,
	// and with the child of such a process. May be nil.
	Prepare func(pid uint32)
	// Demands has what processes lack of the facts of Points. Needed where one has a fact.
	Demands Demands
	// Maps keeps what was mapped where, for naming addresses. May be nil.
	Maps *procmaps.Cache
	// Visible tells whether a user wants to know of a process; of others
	// nothing is reported or counted as attached. Default: all.
	Visible func(Attachment) bool
	// Report gets every change, from one goroutine at a time; it must not call
	// the tracer. May be nil.
	Report func(Attachment)
	// Warn gets what a user should read. May be nil.
	Warn func(string)
	// WarnAfter is how long nothing may be attached before Warn says so;
	// default 10 s: a server that imports PyTorch loads libcuda that late.
	WarnAfter time.Duration
}

// Stats counts what the tracer did since Start.
type Stats struct {
	Processes  int // known now
	Unreadable int // of them, maps not readable
	Attached   int // (process, file) pairs now
	Hidden     int // further pairs, not Visible
	Files      int // files attached now, mapped or expected to be
	Lost       uint64
	// MapsRead is how many maps files were read.
	MapsRead uint64
	// Events: the kernel tells about processes as they change. Without, the
	// tracer depends on looking every ScanInterval.
	Events bool
	// Latency is from the last seen mapping of a new library to its probes
	// being in place.
	Latency time.Duration
}

>>>>>>> 8efff81 (ig-gpu: record, report, check, explain; diff and leaks as JSON (work in progress))
// Tracer attaches programs until Stop.
type Tracer struct {
	cfg       Config
	mode      Mode
	modeError error // why Auto chose Perf
	libraries []string

	cancel context.CancelFunc
	done   sync.WaitGroup
	queue  chan []procevents.Event
	lost   chan uint64
	events *procevents.Reader
	alive  sync.Map // pid → nothing: processes with a traced library

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
<<<<<<< HEAD
	cfg.setDefaults()
=======
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	if cfg.ScanInterval <= 0 {
		cfg.ScanInterval = time.Second
	}
	if cfg.WarnAfter <= 0 {
		cfg.WarnAfter = 10 * time.Second
	}
	if cfg.Maps == nil {
		cfg.Maps = procmaps.NewCache(procmaps.Config{ProcFS: cfg.ProcFS})
	}
	if cfg.Report == nil {
		cfg.Report = func(Attachment) {}
	}
	if cfg.Visible == nil {
		cfg.Visible = func(Attachment) bool { return true }
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string) {}
	}
	if cfg.Prepare == nil {
		cfg.Prepare = func(uint32) {}
	}
	if cfg.Select == nil {
		cfg.Select = func(uint32, bool) error { return nil }
	}
>>>>>>> 8efff81 (ig-gpu: record, report, check, explain; diff and leaks as JSON (work in progress))
	t := &Tracer{cfg: cfg, queue: make(chan []procevents.Event, 256), lost: make(chan uint64, 1)}
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
	if samePIDs(t.cfg.ProcFS) {
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
	t.done.Add(1)
	go func() {
		defer t.done.Done()
		t.loop(ctx)
	}()
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
// each, the kernel waits for running programs, one after the other whoever
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
			if want(m.row) {
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
