// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/placement"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// file is a library file that was read, attached or not.
type file struct {
	buildID         string
	symbols, wanted int
	mode            Mode
	note            string
	status          Status
	err             string

	links []link.Link
	// onDemand are its probes that are attached in single processes only.
	onDemand []probe
	// probes are all others; links has those of them that are attached now.
	probes  []probe
	library string
	tenant  procmaps.Tenant // who had it first
	held    *procmaps.File  // while attached; nil: not held
	content contents
	// users are the processes that have it mapped; roots the root directories
	// in which it was found.
	users map[uint32]bool
	roots map[rootKey]bool
	// unused is since when neither is alive.
	unused time.Time
	// own: it is attached to for one process only (USDT), which it ends with. waiting
	// is where it is mapped, while its process is not visible, or since loading while the
	// loader is not done with it.
	own     bool
	waiting *procmaps.Mapping
	loading time.Time
	// hangs: its file system did not answer; it is read again later.
	hangs bool
	// isLeftOut: it could not be probed again, which is logged once. isIncomplete: so it has none of the probes that it should
	// have all of the time, until a scan can attach them.
	isLeftOut, isIncomplete bool
}

// contents changes when a file is written to.
type contents struct{ size, mtime int64 }

func contentsOf(f *procmaps.File) (c contents) {
	if st, ok := statOf(f, unix.STATX_SIZE|unix.STATX_MTIME); ok {
		c = contents{int64(st.Size), st.Mtime.Sec*int64(time.Second) + int64(st.Mtime.Nsec)}
	}
	return c
}

func newFile() *file {
	return &file{users: map[uint32]bool{}, roots: map[rootKey]bool{}}
}

func (f *file) attached() bool {
	return len(f.links) > 0 || (len(f.onDemand)+len(f.probes) > 0 && f.held != nil)
}

// overwritten reports whether the content changed under the probes. The kernel
// would continue to execute the instructions that it copied from the old content,
// so these probes must go. Package managers replace files instead.
func (f *file) overwritten() bool { return f.held != nil && contentsOf(f.held) != f.content }

// deleted reports whether the file has no name any more.
func (f *file) deleted() bool {
	st, ok := statOf(f.held, unix.STATX_NLINK)
	return ok && st.Nlink == 0
}

// statOf has facts about a file as the kernel has them, without a request to a server of its file system.
func statOf(f *procmaps.File, want int) (st unix.Statx_t, ok bool) {
	ok = f != nil && unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, want, &st) == nil
	return st, ok
}

// probe is a function of a file.
type probe struct {
	symbol  string
	entry   uint64 // position in the file
	offset  uint64 // from there to the probed instruction
	cookie  uint32
	exit    bool
	sleeps  bool
	fact    uint32 // 0: always probed
	aliases []string
}

// resolved are the probes of a file. Files of the same build id do not share them: it can be forged, and a probe
// at a place that another file has chosen would break the process that maps this one.
type resolved struct {
	buildID string
	probes  []probe
	symbols int
	wanted  int
	err     error
}

// maxFiles bounds the files that are probed or known not to be; above half of it only those
// that a process has mapped are kept.
const maxFiles = 1024

// hasRoom reports whether a tenant may have one more file.
func (t *Tracer) hasRoom(tenant procmaps.Tenant) bool {
	return throttle.HasRoomIn(t.files, maxFiles, func(_ fileKey, f *file) bool { return f.tenant == tenant })
}

// attach puts probes on a file, once however often it is called. On a file that
// was overwritten they are attached again.
func (t *Tracer) attach(f *procmaps.File, key fileKey, library string, tenant procmaps.Tenant) *file {
	lib := newFile()
	lib.library, lib.tenant = library, tenant
	lib.content = contentsOf(f)
	if known := t.files[key]; known != nil {
		if known.content == lib.content {
			return known
		}
		delete(t.files, key)
		t.done.Go(known.detaching())
	}
	if !t.hasRoom(tenant) {
		lib.status, lib.err = StatusFailed, fmt.Sprintf("%d library files are known, and this container has too many", len(t.files))
		return lib
	}
	t.files[key] = lib
	r := t.resolve(f, library, tenant)
	lib.buildID, lib.symbols, lib.wanted = r.buildID, r.symbols, r.wanted
	switch {
	case errors.Is(r.err, procmaps.ErrHangs): // whatever could not be read for that
		lib.unreadable(r.err)
	case errors.Is(r.err, module.ErrNotELF), errors.Is(r.err, module.ErrUnsupported):
		lib.status, lib.err = StatusNotELF, r.err.Error()
	case errors.Is(r.err, module.ErrNoSymbols), r.err == nil && len(r.probes) == 0:
		lib.status = StatusNoSymbols
		if r.err != nil {
			lib.err = r.err.Error()
		}
	case r.err != nil:
		lib.unreadable(r.err)
	default:
		t.link(lib, f, r.probes)
	}
	if lib.hangs {
		delete(t.files, key)
	}
	return lib
}

func (f *file) unreadable(err error) {
	f.status, f.err, f.hangs = StatusUnreadable, err.Error(), errors.Is(err, procmaps.ErrHangs)
}

// resolve reads the symbols of a file.
func (t *Tracer) resolve(f *procmaps.File, library string, tenant procmaps.Tenant) *resolved {
	r := &resolved{}
	var symbols []string
	for _, p := range t.cfg.Points {
		if p.Library == library {
			symbols = append(symbols, p.Symbol)
		}
	}
	r.wanted = len(symbols)
	m, err := module.Open(f, f.Size())
	if err != nil {
		r.err = err
		return r
	}
	r.buildID = m.BuildID()
	found, err := m.Lookup(symbols)
	if err != nil {
		r.err = err
		return r
	}
	at := map[uint64]int{} // address → index in r.probes
	for _, p := range t.cfg.Points {
		addr, ok := found[p.Symbol]
		if p.Library != library || !ok {
			continue
		}
		entry, ok := m.FileOffset(addr)
		if !ok {
			continue
		}
		r.symbols++
		if i, same := at[addr]; same {
			r.probes[i].aliases = append(r.probes[i].aliases, p.Symbol)
			r.probes[i].exit = r.probes[i].exit || p.Exit
			continue
		}
		code, err := m.Code(addr, placement.Window)
		if err != nil && !errors.Is(err, procmaps.ErrHangs) {
			r.symbols--
			continue // a function outside the code is not called
		}
		var locals uint32
		if err == nil {
			locals, err = t.threadLocals(m, p, addr, tenant)
		}
		if err != nil { // without this one, a library that is half traced
			return &resolved{buildID: r.buildID, wanted: r.wanted, err: err}
		}
		at[addr] = len(r.probes)
		r.probes = append(r.probes, probe{
			symbol: p.Symbol, entry: entry, cookie: p.Cookie | locals<<8, exit: p.Exit, sleeps: p.EntrySleeps, fact: p.Fact,
			offset: placement.Offset(m.Machine(), code),
		})
	}
	return r
}

// threadLocals is the number of the library's thread-local variables for the programs; 0:
// there are none that they could find, which they count. An error means that the file system does not answer.
func (t *Tracer) threadLocals(m *module.Module, p Point, function uint64, tenant procmaps.Tenant) (uint32, error) {
	if !p.ThreadLocals {
		return 0, nil
	}
	block, err := m.ThreadLocalBlock()
	if errors.Is(err, procmaps.ErrHangs) {
		return 0, err
	}
	var number uint32
	if err == nil {
		number, err = t.cfg.ThreadLocals(function, block, tenant)
	}
	if err != nil {
		t.cfg.Warn(fmt.Sprintf("%s: what threads of it work on is not known: %v", p.Library, err))
		return 0, nil
	}
	return number, nil
}

// lingering keeps the probes of a file that no process uses for a moment: a
// container that restarts finds them in place.
const lingering = 2 * time.Second

// detachUnused detaches from files that no process can map any more: those without a
// process that are deleted, or whose root directories have no process left. A
// probe holds its file system, so a removed container must not be kept. Files
// that a new process can map again stay probed, so that nothing of it is
// missed.
func (t *Tracer) detachUnused(now time.Time) {
	roots := map[rootKey]bool{t.hostRoot: true}
	for _, p := range t.processes {
		roots[p.root] = true
	}
	for key, f := range t.files {
		if f.overwritten() {
			delete(t.files, key)
			t.done.Go(f.detaching())
			continue
		}
		used := len(f.users) > 0
		for root := range f.roots {
			switch {
			case !roots[root]:
				delete(f.roots, root)
			case f.attached() && !f.deleted() && len(t.files) < maxFiles/2:
				used = true
			}
		}
		switch {
		case used:
			f.unused = time.Time{}
		case f.unused.IsZero():
			f.unused = now
		case now.Sub(f.unused) >= lingering:
			delete(t.files, key)
			t.done.Go(f.detaching()) // can take seconds, with perf events
		}
	}
}

// detach ends the probes of a file, and waits for it.
func (f *file) detach() { f.detaching()() }

// detaching is detach in two parts: afterwards the file has no probes, and what it returns waits for the kernel. Only the
// first needs the lock.
func (f *file) detaching() (wait func()) {
	links, held := f.links, f.held
	f.links, f.onDemand, f.probes, f.held = nil, nil, nil, nil
	return func() {
		// The kernel waits for running programs at each; the waits can overlap.
		var wait sync.WaitGroup
		for _, l := range links {
			wait.Go(func() { l.Close() })
		}
		wait.Wait()
		if held != nil {
			held.Close()
		}
	}
}

func (t *Tracer) detachAll() {
	// The kernel waits at each file; more than these at once do not end sooner.
	var wait sync.WaitGroup
	free := make(chan struct{}, 16)
	for _, f := range t.files {
		free <- struct{}{}
		wait.Go(func() { f.detach(); <-free })
	}
	wait.Wait()
	for pid, p := range t.processes {
		for _, m := range p.files {
			if m.file.own {
				m.file.detach()
			}
			t.closeWindows(p, m)
		}
		t.alive.Delete(pid)
	}
	t.state = newState()
}
