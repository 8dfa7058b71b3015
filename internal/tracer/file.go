// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"maps"
	"os"
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
	fd      int // the file, while attached; -1: none
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
}

// contents changes when a file is written to.
type contents struct{ size, mtime int64 }

func contentsOf(fd int) (c contents) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		c = contents{st.Size, st.Mtim.Nano()}
	}
	return c
}

func newFile() *file {
	return &file{fd: -1, users: map[uint32]bool{}, roots: map[rootKey]bool{}}
}

func (f *file) attached() bool {
	return len(f.links) > 0 || (len(f.onDemand)+len(f.probes) > 0 && f.fd >= 0)
}

// overwritten reports whether the content changed under the probes. The kernel
// would continue to execute the instructions that it copied from the old content,
// so these probes must go. Package managers replace files instead.
func (f *file) overwritten() bool { return f.fd >= 0 && contentsOf(f.fd) != f.content }

// deleted reports whether the file has no name any more.
func (f *file) deleted() bool {
	var st unix.Stat_t
	return f.fd >= 0 && unix.Fstat(f.fd, &st) == nil && st.Nlink == 0
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

// resolved are the probes of all files with one content.
type resolved struct {
	buildID string
	probes  []probe
	symbols int
	wanted  int
	err     error
}

// buildKey identifies content: a build id can be forged, so the size and the
// library are part of it, and content without one is not shared.
type buildKey struct {
	library, buildID string
	size             int64
}

const (
	// maxBuilds bounds the memory for resolved files.
	maxBuilds = 64
	// maxFiles bounds the files that are probed or known not to be; above half
	// of it only those that a process has mapped are kept.
	maxFiles = 1024
)

// attach puts probes on a file, once however often it is called. On a file that
// was overwritten they are attached again.
func (t *Tracer) attach(f *os.File, key fileKey, library string) *file {
	lib := newFile()
	lib.library = library
	lib.content = contentsOf(int(f.Fd()))
	if known := t.files[key]; known != nil {
		if known.content == lib.content {
			return known
		}
		delete(t.files, key)
		t.done.Go(known.detach)
	}
	if len(t.files) >= maxFiles {
		lib.status, lib.err = StatusFailed, fmt.Sprintf("more than %d library files", maxFiles)
		return lib
	}
	t.files[key] = lib
	r := t.resolve(f, library)
	lib.buildID, lib.symbols, lib.wanted = r.buildID, r.symbols, r.wanted
	switch {
	case errors.Is(r.err, module.ErrNotELF), errors.Is(r.err, module.ErrUnsupported):
		lib.status, lib.err = StatusNotELF, r.err.Error()
	case errors.Is(r.err, module.ErrNoSymbols), r.err == nil && len(r.probes) == 0:
		lib.status = StatusNoSymbols
		if r.err != nil {
			lib.err = r.err.Error()
		}
	case r.err != nil:
		lib.status, lib.err = StatusUnreadable, r.err.Error()
	default:
		t.link(lib, f, r.probes)
	}
	return lib
}

// resolve reads the symbols of a file.
func (t *Tracer) resolve(f *os.File, library string) *resolved {
	r := &resolved{}
	var symbols []string
	for _, p := range t.cfg.Points {
		if p.Library == library {
			symbols = append(symbols, p.Symbol)
		}
	}
	r.wanted = len(symbols)
	st, err := f.Stat()
	if err != nil {
		r.err = err
		return r
	}
	m, err := module.Open(f, st.Size())
	if err != nil {
		r.err = err
		return r
	}
	key := buildKey{library, m.BuildID(), st.Size()}
	if known := t.builds[key]; known != nil && key.buildID != "" {
		return known
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
		if err != nil {
			r.symbols--
			continue // a function outside the code is not called
		}
		at[addr] = len(r.probes)
		r.probes = append(r.probes, probe{
			symbol: p.Symbol, entry: entry, cookie: p.Cookie | t.threadLocals(m, p, addr)<<8, exit: p.Exit, sleeps: p.EntrySleeps, fact: p.Fact,
			offset: placement.Offset(m.Machine(), code),
		})
	}
	if key.buildID != "" {
		if len(t.builds) >= maxBuilds {
			clear(t.builds)
		}
		t.builds[key] = r
	}
	return r
}

// threadLocals is the number of the library's thread-local variables for the programs; 0:
// there are none that they could find, which they count.
func (t *Tracer) threadLocals(m *module.Module, p Point, function uint64) uint32 {
	if !p.ThreadLocals {
		return 0
	}
	block, err := m.ThreadLocalBlock()
	var number uint32
	if err == nil {
		number, err = t.cfg.ThreadLocals(function, block)
	}
	if err != nil {
		t.cfg.Warn(fmt.Sprintf("%s: what threads of it work on is not known: %v", p.Library, err))
		return 0
	}
	return number
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
	maps.DeleteFunc(t.spent, func(root rootKey, a *throttle.Allowance) bool { return !roots[root] && a.Pause(now) == 0 })
	for key, f := range t.files {
		if f.overwritten() {
			delete(t.files, key)
			t.done.Go(f.detach)
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
			t.done.Go(f.detach) // can take seconds, with perf events
		}
	}
}

func (f *file) detach() {
	// The kernel waits for running programs at each; the waits can overlap.
	var wait sync.WaitGroup
	for _, l := range f.links {
		wait.Go(func() { l.Close() })
	}
	wait.Wait()
	f.links, f.onDemand, f.probes = nil, nil, nil
	if f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
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
