// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Point is a function to probe.
type Point struct {
	Library string // file name up to ".so"
	Symbol  string
	Cookie  uint32
	Exit    bool
	// EntrySleeps: the entry is for Programs.SleepingEnter.
	EntrySleeps bool
	// Fact, if not 0, is the fact that the point supplies: it is probed in one process at a time,
	// while the fact is missing there. See Demands.
	Fact uint32
	// ThreadLocals: the cookie, from bit 8 on, is what Config.ThreadLocals gives for the
	// library; 0 where it has no block of them.
	ThreadLocals bool
	// Beside: the library is not probed in a process for its own sake, only where another
	// one is that has points without this. A library that is preloaded is in every process
	// of its container.
	Beside bool
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
	StatusGone       Status = "gone"       // the process exited, or unmapped the file
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
	// Select receives the traced processes when PIDs is given, before
	// anything is attached, and again when one exits. May be nil.
	Select func(tgid uint32, selected bool) error
	// Ended is called when the last selected process has ended: nothing is left
	// to trace. May be nil; not called without PIDs.
	Ended func()
	// Prepare is called with a process before its first library is attached to,
	// and with the child of such a process. May be nil.
	Prepare func(pid uint32)
	// Demands has which facts of Points are missing in which processes. Needed where one has a fact.
	Demands Demands
	// ThreadLocals makes known to the programs where a library has its thread-local
	// variables, and returns the number, from 1 on, by which they ask for that; the tenant's
	// process has mapped it first. Needed where one of Points has ThreadLocals.
	ThreadLocals func(function uint64, block module.ThreadLocalBlock, tenant procmaps.Tenant) (uint32, error)
	// Maps keeps what was mapped where, for naming addresses. May be nil.
	Maps *procmaps.Cache
	// Visible reports whether a user wants to know of a process; of others
	// nothing is reported or counted as attached. Default: all.
	Visible func(Attachment) bool
	// Report gets every change, from one goroutine at a time; it must not call
	// the tracer. May be nil.
	Report func(Attachment)
	// Warn gets what a user should read. May be nil.
	Warn func(string)
	// WarnAfter is how long nothing may be attached before Warn reports it;
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
	// MapsRead is how many maps files were read, Later how often one was not read at once because
	// its process had cost too much.
	MapsRead, Later uint64
	// Events: the kernel reports processes as they change. Without, the
	// tracer depends on looking every ScanInterval.
	Events bool
	// Latency is from the last seen mapping of a new library to its probes
	// being in place.
	Latency time.Duration
}

func (cfg *Config) setDefaults() {
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
	if cfg.Select == nil {
		cfg.Select = func(uint32, bool) error { return nil }
	}
}
