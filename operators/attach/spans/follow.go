// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procevents"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Processes are the facts about processes that the search needs; *procmaps.Cache has them.
type Processes interface {
	Read(pid uint32, keep func(procmaps.Mapping) bool) ([]procmaps.Mapping, error)
	Open(pid uint32, m procmaps.Mapping) (*procmaps.File, error)
	Identities(pid uint32, all []procmaps.Mapping) []string
	Tenant(pid uint32) procmaps.Tenant
}

// Table is the map span_source_by_tgid of bpf/process/span.h.
type Table interface {
	// Put returns an error that is ErrFull if there is no room.
	Put(tgid uint32, s Source) error
	Delete(tgid uint32) error
	// PIDs are those of all entries: the programs make some, too.
	PIDs() ([]uint32, error)
	// Size is how many entries there may be.
	Size() int
}

// ErrFull is the error of a Table without room.
var ErrFull = errors.New("the table of processes that publish spans is full")

// Config of a Follower.
type Config struct {
	ProcFS    string
	Processes Processes
	Table     Table
	// Attributes are the names of those to be read, at most Attributes of them.
	Attributes []string
	// Info gets what a user may like to know, Warn what a user should read. May be nil.
	Info, Warn func(string)
}

const (
	// settle lets a process map several libraries before it is read again.
	settle = 5 * time.Millisecond
	// scanEvery is how often processes are listed, for those that no event reported.
	scanEvery = time.Second
	// slowest bounds how late a library is found without events.
	slowest = 16 * time.Second
	// maxMapped bounds the files that one process can make this program open.
	maxMapped = 4096
	// maxReported bounds what is reported once: errors, and libraries that processes have.
	maxReported = 64
)

// Follower keeps a Table up to date: it looks for the variable in the files that
// processes have mapped, when they start and whenever they map another one.
type Follower struct {
	cfg    Config
	events *procevents.Reader
	cancel context.CancelFunc
	done   sync.WaitGroup
	queue  chan []procevents.Event
	lost   chan struct{}

	// What follows belongs to the goroutine of loop, before it to Start.
	known map[uint32]*process
	dirty map[uint32]bool
	files files
	spent throttle.Allowances[procmaps.Tenant]
	cost  time.Duration   // of files, for the tenant whose turn it is
	later map[uint32]bool // to be read with a scan: when its tenant may cost something again, or the table has room
	room  room
	// What was reported: errors, and libraries.
	warned   map[string]bool
	reported map[string]procmaps.Tenant
}

type process struct {
	startStack uint64
	source     Source // Access 0: none
	keyless    bool   // not all wanted attributes have a number yet
	looked     int
	next       time.Time
}

// NewFollower checks nothing: Start does.
func NewFollower(cfg Config) *Follower {
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	if cfg.Info == nil {
		cfg.Info = func(string) {}
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string) {}
	}
	return &Follower{
		cfg: cfg, queue: make(chan []procevents.Event, 256), lost: make(chan struct{}, 1),
		known: map[uint32]*process{}, dirty: map[uint32]bool{}, files: newFiles(),
		spent: newSpent(), room: newRoom(), later: map[uint32]bool{}, warned: map[string]bool{}, reported: map[string]procmaps.Tenant{},
	}
}

// Start reads all processes, and continues in the background until Stop.
func (f *Follower) Start(ctx context.Context) error {
	ctx, f.cancel = context.WithCancel(ctx)
	// Recording starts before the first look, so that nothing falls between.
	self, err := os.Readlink(filepath.Join(f.cfg.ProcFS, "self"))
	if err == nil && self == strconv.Itoa(os.Getpid()) { // else of another PID namespace
		f.events, err = procevents.Open()
	}
	if f.events == nil {
		f.cfg.Warn(fmt.Sprintf("spans of new processes are found up to %v late: no process events (%v)", slowest, err))
	} else {
		f.done.Go(func() {
			if err := f.events.Run(ctx, isFile, f.enqueue); err != nil {
				f.cfg.Warn("spans of new processes may be found late: " + err.Error())
			}
		})
	}
	if err := f.scan(true); err != nil {
		f.Stop()
		return fmt.Errorf("list processes: %w", err)
	}
	f.done.Go(func() { f.loop(ctx) })
	return nil
}

// Stop waits for the end of what runs in the background. It may be called more than
// once, and without Start.
func (f *Follower) Stop() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	f.done.Wait()
	if f.events != nil {
		f.events.Close()
		f.events = nil
	}
}

// isFile: code that is made at run time is mapped as //anon.
func isFile(_ uint32, path []byte) bool {
	return bytes.HasPrefix(path, []byte("/")) && !bytes.HasPrefix(path, []byte("//anon"))
}

// enqueue passes events on; when the loop is far behind it reads all processes.
func (f *Follower) enqueue(batch []procevents.Event) {
	select {
	case f.queue <- append([]procevents.Event(nil), batch...):
	default:
		select {
		case f.lost <- struct{}{}:
		default:
		}
	}
}

func (f *Follower) loop(ctx context.Context) {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	soon := time.NewTimer(time.Hour)
	defer soon.Stop()
	all := false
	for {
		select {
		case <-ctx.Done():
			return
		case batch := <-f.queue:
			waiting := len(f.dirty) > 0
			for _, e := range batch {
				all = f.handle(e) || all
			}
			if !waiting && len(f.dirty) > 0 {
				soon.Reset(settle)
			}
		case <-f.lost:
			all = true
		case <-soon.C:
			for pid := range f.dirty {
				f.look(pid)
			}
			clear(f.dirty)
		case <-tick.C:
			if err := f.scan(all); err != nil {
				f.warn("processes cannot be listed: " + err.Error())
			}
			all = false
		}
	}
}

// handle reports whether all processes have to be read.
func (f *Follower) handle(e procevents.Event) bool {
	switch e.Kind {
	case procevents.Map:
		f.dirty[e.PID] = true
	case procevents.Fork:
		// The programs have copied the parent's entry, if it was there already.
		switch p := f.known[e.Parent]; {
		case p == nil:
		case p.source.Access != 0 || f.dirty[e.Parent]:
			f.dirty[e.PID] = true
		default:
			child := *p
			f.known[e.PID] = &child
		}
	case procevents.Exec, procevents.Exit:
		// And have deleted this one.
		delete(f.known, e.PID)
		delete(f.dirty, e.PID)
		delete(f.later, e.PID)
	case procevents.Lost:
		return true
	}
	return false
}

// drop forgets a process. The programs delete the entry of one that exits; what was
// written in that very moment is deleted here.
func (f *Follower) drop(pid uint32, p *process) {
	delete(f.known, pid)
	if p.source.Access != 0 {
		if err := f.cfg.Table.Delete(pid); err != nil {
			f.warn(fmt.Sprintf("spans of exited processes are not cleaned up: %v", err))
		}
	}
}

// inspect looks for the variable in what a process has mapped, and returns how many mappings it has read.
func (f *Follower) inspect(pid uint32) int64 {
	start := startStack(f.cfg.ProcFS, pid)
	p := f.known[pid]
	if p == nil || p.startStack != start {
		if p != nil {
			f.drop(pid, p)
		}
		p = &process{startStack: start}
		f.known[pid] = p
	}
	p.next = time.Now().Add(min(scanEvery<<min(p.looked, 6), slowest))
	p.looked++
	if start == 0 {
		return 0 // a thread of the kernel, or one that we may not read
	}
	musl, mapped := false, 0
	var read atomic.Int64 // a read that did not end in time continues
	var context procmaps.Mapping
	mappings, err := f.cfg.Processes.Read(pid, func(m procmaps.Mapping) bool {
		read.Add(1)
		if isContext(m) {
			context = m
		}
		if m.Perms&procmaps.Exec == 0 || !m.IsFile() || mapped >= maxMapped {
			return false
		}
		mapped++
		musl = musl || isMusl(m)
		return true
	})
	if err != nil {
		if errors.Is(err, procmaps.ErrGone) {
			f.drop(pid, p)
		}
		return read.Load()
	}
	source, where := f.find(pid, start, mappings, musl)
	if source.Access != 0 {
		source.Keys, p.keyless = f.keys(pid, context)
	}
	if source != p.source {
		f.put(pid, p, source, where)
	}
	return read.Load()
}

func (f *Follower) put(pid uint32, p *process, s Source, where string) {
	if s.Access == 0 {
		f.drop(pid, p)
		return
	}
	err := f.cfg.Table.Put(pid, s)
	if errors.Is(err, ErrFull) && f.makeRoom(pid) {
		err = f.cfg.Table.Put(pid, s)
	}
	if err != nil {
		f.later[pid] = true
		text := fmt.Sprintf("spans of process %d are not recorded: %v", pid, err)
		if errors.Is(err, ErrFull) {
			text = fmt.Sprintf("more than %d processes publish spans: those of some are not recorded", f.cfg.Table.Size())
		}
		f.warnOf(err.Error(), text)
		return
	}
	p.source = s
	// It may have exited meanwhile, or run another program by now, of which the
	// programs took notice before this entry was there.
	if startStack(f.cfg.ProcFS, pid) != s.StartStack {
		f.drop(pid, p)
		return
	}
	f.report(pid, f.cfg.Info, where, fmt.Sprintf("process %d publishes its spans by %s", pid, where))
}
