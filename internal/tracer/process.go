// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procevents"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// state is the tracer's state.
type state struct {
	processes map[uint32]*process
	files     map[fileKey]*file
	expected  map[place]time.Time // directories already searched
	selected  map[uint32]uint64   // with Config.PIDs: when it started, 0 if not known
	ending    map[uint32]bool     // their first thread has ended
	dirty     map[uint32]bool     // to be read again for naming
	// What tenants have cost, and what searches for their libraries have; later are the processes
	// whose mappings are to be read when that may cost something again.
	spent, searched throttle.Allowances[procmaps.Tenant]
	later           map[uint32]procmaps.Tenant
	// byPoint are the files whose probes were attached point by point, lately.
	byPoint []time.Time
	windows windows
	closers chan struct{} // has one for each that closes a window just now

	hostRoot   rootKey
	dirtyTimer bool
	endsSoon   bool // one more is in ending
	rescanAll  bool
	nextScan   time.Time
}

func newState() state {
	return state{
		processes: map[uint32]*process{},
		files:     map[fileKey]*file{},
		expected:  map[place]time.Time{},
		selected:  map[uint32]uint64{},
		ending:    map[uint32]bool{},
		dirty:     map[uint32]bool{},
		spent:     newTenantsSpent(),
		searched:  newSearched(),
		later:     map[uint32]procmaps.Tenant{},
		windows:   windows{byTenant: map[procmaps.Tenant]*tenantWindows{}},
		closers:   make(chan struct{}, closers),
	}
}

// process is one that exists.
type process struct {
	pid     uint32
	start   uint64
	comm    string
	mountNS uint64
	root    rootKey
	tenant  procmaps.Tenant
	files   map[fileKey]mapped
	err     error // its maps could not be read
	// next is when to read its maps again where there are no events; reads counts
	// how often they were read.
	next  time.Time
	reads int
	spent throttle.Allowance // on its mappings
	costs time.Duration      // of the last read
}

// mapped is a library of a process.
type mapped struct {
	file *file
	row  Attachment
	// windows are the times in which its probes on demand are attached, by fact.
	windows map[uint32]*window
}

// matches returns which library a path is, or "".
func (t *Tracer) matches(path string) string {
	for _, library := range t.libraries {
		if procmaps.IsLibrary(path, library) {
			return library
		}
	}
	return ""
}

// interesting reports whether a new mapping of code, of any process, is worth an event.
// The goroutine that reads events calls it.
func (t *Tracer) interesting(pid uint32, path []byte) bool {
	if _, ok := t.alive.Load(pid); ok && !bytes.HasPrefix(path, []byte("//anon")) {
		return true
	}
	s := string(path)
	return t.matches(s) != "" || sitePackages(s) != ""
}

func (t *Tracer) handle(e procevents.Event) {
	switch e.Kind {
	case procevents.Fork:
		if t.ending[e.PID] {
			t.end(e.PID) // another process has the pid
		}
		// The child has its parent's mappings and needs no new probes; it gets
		// its row at the next scan, when it is no longer about to exec.
		if t.isSelected(e.Parent) {
			t.choose(e.PID, true)
		}
		if p := t.processes[e.Parent]; p != nil && len(p.files) > 0 {
			t.prepare(p, e.PID)
		}
	case procevents.Exec:
		delete(t.ending, e.PID)
		t.leave(e.PID)
		t.cfg.Maps.Stale(e.PID)
		if t.chosen(e.PID) {
			t.predict(e.PID)
		}
	case procevents.Map:
		if !t.chosen(e.PID) {
			return
		}
		if site := sitePackages(e.Path); site != "" {
			t.predictSite(e.PID, site)
		}
		if t.matches(e.Path) != "" {
			before := len(t.files)
			t.look(e.PID)
			if len(t.files) > before {
				t.stats.Latency = time.Duration(monotonic() - e.Time)
			}
		}
		if _, ok := t.alive.Load(e.PID); ok {
			t.dirty[e.PID] = true
		}
	case procevents.Exit:
		t.cfg.Maps.Exited(e.PID) // there are none from now on, even if other threads continue
		t.end(e.PID)
	case procevents.Lost:
		t.lose(e.Count)
	}
}

func (t *Tracer) isSelected(pid uint32) bool {
	_, is := t.selected[pid]
	return is
}

// chosen reports whether a process is to be traced.
func (t *Tracer) chosen(pid uint32) bool { return len(t.cfg.PIDs) == 0 || t.isSelected(pid) }

func (t *Tracer) choose(pid uint32, yes bool) {
	if len(t.cfg.PIDs) == 0 || t.isSelected(pid) == yes {
		return
	}
	if yes {
		t.selected[pid], _ = procmaps.StartTime(t.cfg.ProcFS, pid)
	} else {
		delete(t.selected, pid)
	}
	if err := t.cfg.Select(pid, yes); err != nil {
		t.cfg.Warn(fmt.Sprintf("process %d is not filtered correctly: %v", pid, err))
	}
	if len(t.selected) == 0 && t.cfg.Ended != nil {
		t.cfg.Ended()
	}
}

// release drops a library from a process.
func (t *Tracer) release(p *process, key fileKey) {
	m := p.files[key]
	delete(p.files, key)
	delete(m.file.users, p.pid)
	if m.file.own {
		t.done.Go(m.file.detaching())
	}
	t.closeWindows(p, m)
	if m.row.Status == StatusAttached {
		m.row.Status, m.row.Error = StatusGone, ""
		t.report(m.row)
	}
}

// inspect reads the maps of a process and attaches to its libraries. tenant is whom it belongs to; 0: not read yet.
func (t *Tracer) inspect(pid uint32, tenant procmaps.Tenant) {
	t.stats.MapsRead++
	t.alive.Store(pid, struct{}{}) // an event reports what it maps after this read
	defer func() {
		if p := t.processes[pid]; p != nil && len(p.files) > 0 {
			t.alive.Store(pid, struct{}{})
		} else {
			t.alive.Delete(pid)
		}
	}()
	snapshot, err := t.cfg.Maps.Look(pid, t.isWanted)
	if t.ending[pid] && (errors.Is(err, procmaps.ErrGone) || err == nil && len(snapshot.Mappings) == 0) {
		return // its other threads have what it had mapped
	}
	if errors.Is(err, procmaps.ErrGone) {
		t.leave(pid)
		return
	}
	if snapshot.Process.PID == 0 {
		return
	}
	start := snapshot.Process.StartTime // 0 of a machine's first
	p := t.processes[pid]
	if p != nil && p.start != start {
		t.leave(pid)
		p = nil
	}
	if p == nil {
		if tenant == 0 {
			tenant = t.tenantOf(pid)
		}
		p = &process{pid: pid, start: start, root: t.rootOf(pid), tenant: tenant, files: map[fileKey]mapped{}, spent: newSpent()}
		t.processes[pid] = p
	}
	p.reads++
	p.next = time.Now().Add(min(t.cfg.ScanInterval<<min(p.reads, 6), maxRescan))
	p.err = err
	p.costs = snapshot.Cost()
	if errors.Is(err, procmaps.ErrStuck) {
		p.costs = stuckCost
	}
	t.take(p, p.costs)
	found := t.withoutLone(t.libraryMappings(snapshot))
	if err != nil || (len(found) == 0 && len(p.files) == 0) {
		return
	}
	p.comm = t.comm(pid)
	view := t.cfg.Maps.FilesOf(pid, p.tenant)
	p.mountNS = view.MountNS()
	if len(p.files) == 0 {
		t.prepare(p, pid)
	}
	t.take(p, foundCost(len(found), len(p.files) == 0))
	seen := map[fileKey]bool{}
	for _, m := range found {
		if key, ok := t.enter(p, view, m); ok {
			seen[key] = true
		}
	}
	for key := range p.files {
		if !seen[key] {
			t.release(p, key)
		}
	}
	t.attachLoaded(p)
	if len(p.files) > 0 {
		t.cfg.Maps.Keep(snapshot, p.tenant)
	}
}

// isWanted reports whether a mapping is the code of a library that is probed.
func (t *Tracer) isWanted(m procmaps.Mapping) bool {
	return m.Perms&procmaps.Exec != 0 && m.IsFile() && t.matches(m.Path) != ""
}

// collectives are the libraries that are attached to last: who is seen to issue a collective is then seen to wait for it in
// the driver, too.
var collectives = []string{"libnccl", "librccl"}

// libraryMappings are those of the libraries that a process has, one of each: a library may have several. Those of
// collectives are last.
func (t *Tracer) libraryMappings(s *procmaps.Snapshot) (found []procmaps.Mapping) {
	seen := map[string]bool{}
	for _, m := range s.Mappings {
		if !t.isWanted(m) || seen[m.Path] {
			continue
		}
		seen[m.Path] = !m.Deleted // several deleted files may share a path
		if found = append(found, m); len(found) == maxLibrariesPerProcess {
			break
		}
	}
	last := func(m procmaps.Mapping) int { return slices.Index(collectives, t.matches(m.Path)) }
	slices.SortStableFunc(found, func(a, b procmaps.Mapping) int { return cmp.Compare(last(a), last(b)) })
	return found
}

const (
	// maxLibrariesPerProcess bounds how many traced files one process can
	// make this program open.
	maxLibrariesPerProcess = 64
	// maxRescan bounds how late a mapping is found without events.
	maxRescan = 16 * time.Second
)

// enter records that a process has mapped a library, attaching to it when it
// is a new one.
func (t *Tracer) enter(p *process, view procmaps.Files, m procmaps.Mapping) (fileKey, bool) {
	row := Attachment{PID: p.pid, Comm: p.comm, MountNS: p.mountNS, Path: m.Path}
	f, err := view.OpenMapped(m)
	if err != nil {
		if _, gone := procmaps.StartTime(t.cfg.ProcFS, p.pid); gone != nil {
			return fileKey{}, false // exited meanwhile
		}
		return t.unopened(p, m, row, err), true
	}
	defer f.Close()
	key, err := identify(f, m)
	if err != nil {
		return key, false
	}
	known, isKnown := p.files[key]
	if isKnown && !known.file.hangs {
		return key, true
	}
	var lib *file
	switch library := t.matches(m.Path); {
	case !t.cfg.USDT.has(library):
		if t.files[key] == nil {
			t.take(p, fileCost)
		}
		lib = t.attach(f, key, library, p.tenant)
	case t.cfg.Visible(row):
		lib = t.attachStatic(f, p.pid, m, time.Now())
	default:
		lib = wait(m)
	}
	if lib.hangs {
		t.later[p.pid] = p.tenant
		if isKnown {
			return key, true
		}
	}
	lib.users[p.pid] = true
	lib.roots[p.root] = true
	p.files[key] = filled(lib, row)
	t.openWindows(p, p.files[key])
	if lib.loading.IsZero() {
		t.report(p.files[key].row)
	}
	return key, true
}

// unopened records a library that could not be opened: there is no file to attach to, and the mapping stands for it. One that
// hangs is opened again with a later scan, and stays what it was.
func (t *Tracer) unopened(p *process, m procmaps.Mapping, row Attachment, err error) fileKey {
	hangs := errors.Is(err, procmaps.ErrHangs)
	if hangs {
		t.later[p.pid] = p.tenant
		for key, known := range p.files {
			if known.row.Path == m.Path {
				return key
			}
		}
	}
	key := fileKey{dev: m.Device, ino: m.Inode, unreadable: true}
	if known, isKnown := p.files[key]; !isKnown || known.file.hangs {
		lib := newFile()
		lib.hangs = hangs
		row.Status, row.Error = StatusUnreadable, err.Error()
		p.files[key] = mapped{file: lib, row: row}
		t.report(row)
	}
	return key
}

// filled is a library of a process, with what came of attaching to it.
func filled(lib *file, row Attachment) mapped {
	row.BuildID, row.Symbols, row.Wanted = lib.buildID, lib.symbols, lib.wanted
	row.Mode, row.Note, row.Status, row.Error = lib.mode, lib.note, lib.status, lib.err
	return mapped{lib, row, map[uint32]*window{}}
}
