// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// USDT are statically defined probes to attach to, in libraries that have no Points. A
// library may do what costs something only while a tracer listens, which it knows from
// the probes' semaphores: attaching counts them up. So these are attached to each traced
// process by itself, and to no other that has mapped the file.
type USDT struct {
	Probes []StaticProbe
	// Site makes the place of a probe's arguments known to the programs, and returns
	// the cookie by which they ask for it. It is called once per place and process.
	Site func(machine elf.Machine, arguments string) (cookie uint64, err error)
}

// StaticProbe is one of them.
type StaticProbe struct {
	Library        string // file name up to ".so"
	Provider, Name string
	Program        *ebpf.Program // a uprobe program that asks for cookies (Linux 5.15)
}

// maxPlacesOfProbe bounds at how many places of a library one probe is attached to: the compiler
// makes some where it copies code.
const maxPlacesOfProbe = 16

func (u *USDT) has(library string) bool {
	for _, p := range u.Probes {
		if p.Library == library {
			return true
		}
	}
	return false
}

// maxLoading bounds how long the loader of a library is waited for.
const maxLoading = 10 * time.Second

// errLoading: the kernel would count up another place than a semaphore.
var errLoading = errors.New("the first writable mapping of the file that has a semaphore's offset is not the semaphore's")

// checkSemaphores fails where the kernel would count up another place than the semaphore. It
// does so in the first writable mapping that has the semaphore's offset in the file, now or, if
// there is none yet, in the next that is made; and two parts of a library may share a page of
// the file. The first of them is what the loader relocates, and makes read-only when it is done
// (RELRO).
func (t *Tracer) checkSemaphores(pid uint32, path string, m *module.Module, places map[string][]module.Probe) error {
	var writable []procmaps.Mapping
	bias, isMapped := uint64(0), false
	mappings, err := t.cfg.Maps.Read(pid, func(m procmaps.Mapping) bool { return m.Path == path && m.Perms&procmaps.Shared == 0 })
	if err != nil {
		return err
	}
	for _, at := range mappings {
		if at.Perms&procmaps.Write != 0 {
			writable = append(writable, at)
		}
		if at.Perms&procmaps.Exec != 0 && !isMapped {
			bias, isMapped = m.Bias(at.Start, at.Offset)
		}
	}
	for _, probes := range places {
		for _, p := range probes {
			offset, ok := m.WritableOffset(p.Semaphore)
			if p.Semaphore == 0 || !ok {
				continue
			}
			first := slices.IndexFunc(writable, func(w procmaps.Mapping) bool {
				return offset >= w.Offset && offset-w.Offset < w.End-w.Start
			})
			if !isMapped || first < 0 || writable[first].Start+offset-writable[first].Offset != bias+p.Semaphore {
				return errLoading
			}
		}
	}
	return nil
}

// loads is a library that its loader may not be done with: it waits, or has failed.
func (f *file) loads(at procmaps.Mapping, since time.Time, err error) *file {
	if time.Since(since) < maxLoading {
		waiting := wait(at)
		waiting.loading = since
		return waiting
	}
	f.status, f.err = StatusFailed, err.Error()
	return f
}

// attachStatic attaches to a library in one process. The file is of that process alone. since
// is when the process was first seen with it.
func (t *Tracer) attachStatic(f *procmaps.File, pid uint32, at procmaps.Mapping, since time.Time) *file {
	library := t.matches(at.Path)
	lib := newFile()
	lib.own, lib.mode = true, Perf
	m, err := module.Open(f, f.Size())
	if err != nil {
		lib.unreadable(err)
		if errors.Is(err, module.ErrNotELF) || errors.Is(err, module.ErrUnsupported) {
			lib.status = StatusNotELF
		}
		return lib
	}
	lib.buildID = m.BuildID()
	places := map[string][]module.Probe{} // by provider
	for _, p := range t.cfg.USDT.Probes {
		if p.Library != library {
			continue
		}
		lib.wanted++
		if _, known := places[p.Provider]; !known {
			if places[p.Provider], err = m.Probes(p.Provider); err != nil {
				lib.unreadable(err)
				return lib
			}
		}
	}
	if err := t.checkSemaphores(pid, at.Path, m, places); err != nil {
		return lib.loads(at, since, err)
	}
	ex, done, err := executable(f)
	if err != nil {
		lib.unreadable(err)
		return lib
	}
	defer done()
	found, semaphores := 0, 0
	for _, p := range t.cfg.USDT.Probes {
		if p.Library != library {
			continue
		}
		links, before := len(lib.links), found
		for _, place := range places[p.Provider] {
			if place.Name != p.Name || len(lib.links)-links == maxPlacesOfProbe {
				continue
			}
			found++
			l, counted, e := t.linkStatic(ex, m, p, place, pid)
			if e != nil {
				err = fmt.Errorf("%s:%s: %w", p.Provider, p.Name, e)
				continue
			}
			lib.links = append(lib.links, l)
			semaphores += counted
		}
		if len(lib.links) > links {
			lib.symbols++
		} else if found == before {
			err = fmt.Errorf("%s:%s is not in it", p.Provider, p.Name)
		}
	}
	switch {
	case lib.symbols == lib.wanted:
		lib.status = StatusAttached
		lib.note = fmt.Sprintf("USDT: %d places, %d semaphores", len(lib.links), semaphores)
		return lib
	case found == 0:
		lib.status = StatusNoSymbols
	default:
		lib.status = StatusFailed
	}
	if err != nil {
		lib.err = err.Error()
	}
	lib.detach() // some of them would cost, and be of no use
	lib.symbols = 0
	return lib
}

// linkStatic attaches to one place in one process; counted is 1 where it has a semaphore.
func (t *Tracer) linkStatic(ex *link.Executable, m *module.Module, p StaticProbe, place module.Probe, pid uint32) (l link.Link, counted int, err error) {
	if _, err := m.Code(place.Address, 1); err != nil {
		return nil, 0, err
	}
	at, ok := m.FileOffset(place.Address)
	if !ok {
		return nil, 0, fmt.Errorf("no code at %#x", place.Address)
	}
	o := &link.UprobeOptions{Address: at, PID: int(pid)}
	if place.Semaphore != 0 {
		if o.RefCtrOffset, ok = m.WritableOffset(place.Semaphore); !ok || o.RefCtrOffset == 0 {
			return nil, 0, fmt.Errorf("its semaphore at %#x is in no writable part of the file", place.Semaphore)
		}
		counted = 1
	}
	if o.Cookie, err = t.cfg.USDT.Site(m.Machine(), place.Arguments); err != nil {
		return nil, 0, err
	}
	l, err = ex.Uprobe("", p.Program, o)
	return l, counted, err
}

// attachWaiting attaches to libraries whose processes have become visible.
func (t *Tracer) attachWaiting(p *process) {
	for key, m := range p.files {
		if m.file.waiting == nil || !t.cfg.Visible(m.row) {
			continue
		}
		if f, err := t.cfg.Maps.Open(p.pid, *m.file.waiting); err == nil {
			since := m.file.loading
			if since.IsZero() {
				since = time.Now()
			}
			p.files[key] = filled(t.attachStatic(f, p.pid, *m.file.waiting, since), m.row)
			f.Close()
		}
	}
}

// attachLoaded attaches to libraries whose loader has become done with them.
func (t *Tracer) attachLoaded(p *process) {
	var loading []fileKey
	for key, m := range p.files {
		if !m.file.loading.IsZero() {
			loading = append(loading, key)
		}
	}
	if len(loading) == 0 {
		return
	}
	t.attachWaiting(p)
	for _, key := range loading {
		if m := p.files[key]; m.file.loading.IsZero() {
			t.report(m.row)
		}
	}
}

// wait is a library of a process that is not visible yet: nothing is attached.
func wait(m procmaps.Mapping) *file {
	lib := newFile()
	lib.own, lib.waiting = true, &m
	return lib
}
