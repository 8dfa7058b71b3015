// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"runtime/debug"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/recent"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// knownFiles bounds the files of all processes, twice: each container of an image has
	// files of its own.
	knownFiles = 16 << 10
	// wantedTables bounds the tables that are to be read with the next process.
	wantedTables = 1 << 10
	// learning bounds the processes that wait for their files to be read, the last quarter of which is for tenants
	// with few. One that does not get a turn is read when a frame of it is to be named.
	learning = 256
)

// loaded is a module as far as it could be read: module nil if it could not.
type loaded struct {
	module  *module.Module
	buildID string
	file    string // which one it is: see identify
}

// kind is which symbols of a file a table has.
type kind string

const (
	functions kind = ""
	variables kind = " variables" // of the size of a pointer
)

var kinds = []kind{functions, variables}

// wanted is the key of a table that is to be read, of this file or of another one of the same build.
func (l *loaded) wanted(of kind) string {
	if l.buildID != "" {
		return l.buildID + string(of)
	}
	return l.file + string(of)
}

// fileKey is a file as the mappings of processes name it. The number of an inode is given
// to another file one day; not with the same path, within minutes.
type fileKey struct {
	device, inode uint64
	path          string
}

// files is the state of files, whichever process had them: a process that lives for a
// part of a second is gone when its rows are read, and nothing can be opened any more.
type files struct {
	byKey  *recent.Cache[fileKey, *loaded]
	wanted *recent.Cache[string, bool] // tables that could not be read when they were needed

	queue   []pending
	working bool
}

// pending is a process whose files are to be read.
type pending struct {
	of     *procmaps.Snapshot
	tenant procmaps.Tenant
}

// add queues a process, if its tenant has room.
func (f *files) add(l pending) {
	own := func() (n int) {
		for _, other := range f.queue {
			if other.tenant == l.tenant {
				n++
			}
		}
		return n
	}
	if throttle.HasRoom(len(f.queue), learning, own) {
		f.queue = append(f.queue, l)
	}
}

// next takes the first process of another tenant than the last one was of, or else the first one. The queue is
// not empty.
func (f *files) next(last procmaps.Tenant) pending {
	n := max(0, slices.IndexFunc(f.queue, func(l pending) bool { return l.tenant != last }))
	l := f.queue[n]
	f.queue = slices.Delete(f.queue, n, n+1)
	return l
}

func newFiles() files {
	return files{byKey: recent.New[fileKey, *loaded](knownFiles), wanted: recent.New[string, bool](wantedTables)}
}

func keyOf(m procmaps.Mapping) fileKey { return fileKey{m.Device, m.Inode, m.Path} }

// known has the facts of a mapping's file that were read for another process.
func (f *files) known(m procmaps.Mapping) *loaded {
	if l, ok := f.byKey.Get(keyOf(m)); ok {
		return l
	}
	return &loaded{}
}

func (f *files) put(m procmaps.Mapping, l *loaded) { f.byKey.Put(keyOf(m), l) }

// want has the table read when the next process comes that has it mapped.
func (f *files) want(table string) { f.wanted.Put(table, true) }

// open reads the parts of a file that show where its code was linked.
func open(file *procmaps.File) (*loaded, *recorder, error) {
	reader := record(file)
	mod, err := module.Open(reader, reader.size)
	if err != nil {
		return nil, reader, err
	}
	return &loaded{module: mod, buildID: mod.BuildID(), file: identify(file)}, reader, nil
}

// readTable reads the symbols of a module and of its debug file, if it has one.
func readTable(m, separate *module.Module, of kind) *Table {
	read := m.Functions
	if of == variables {
		read = m.Pointers
	}
	symbols, err := read(separate)
	if err != nil {
		symbols = nil // stripped, or unreadable: addresses remain
	}
	t, err := NewTable(symbols)
	if err != nil {
		t = &Table{}
	}
	if len(symbols) > largeModule {
		debug.FreeOSMemory()
	}
	return t
}

// Learn takes the mappings of a process as long as it is there, and reads its
// files: where their code was linked, and the functions of those that a process before it
// has left without names. It returns at once.
func (r *Resolver) Learn(s *procmaps.Snapshot) {
	l := pending{s, r.mappings.Tenant(s.Process.PID)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files.add(l)
	if !r.files.working {
		r.files.working = true
		go r.learn()
	}
}

// learn works until nothing is left to do.
func (r *Resolver) learn() {
	var last procmaps.Tenant
	for {
		r.mu.Lock()
		if len(r.files.queue) == 0 {
			r.files.queue, r.files.working = nil, false
			r.mu.Unlock()
			return
		}
		l := r.files.next(last)
		last = l.tenant
		r.mu.Unlock()
		for _, m := range l.of.Mappings {
			if m.IsFile() {
				r.learnFile(l.of.Process.PID, m)
			}
		}
	}
}

// isNew reports whether a file has to be read.
func (r *Resolver) isNew(m procmaps.Mapping) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, known := r.files.byKey.Get(keyOf(m))
	return !known || len(r.wants(l)) > 0
}

// wants returns which tables of a file are to be read, or found among those of files with its build id; the lock
// is held.
func (r *Resolver) wants(l *loaded) (all []kind) {
	for _, of := range kinds {
		id, known := r.contents.tableOf.Get(l.file + string(of))
		wanted, _ := r.files.wanted.Get(l.wanted(of))
		if wanted && r.tables.get(id) == nil || !known && len(r.contents.candidates(l, of)) > 0 {
			all = append(all, of)
		}
	}
	return all
}

func (r *Resolver) learnFile(pid uint32, m procmaps.Mapping) {
	if !r.isNew(m) {
		return
	}
	file, err := r.mappings.Open(pid, m)
	if err != nil {
		return
	}
	defer file.Close()
	l, reader, err := open(file)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.files.put(m, l)
	wanted := r.wants(l)
	r.mu.Unlock()
	o := opened{l, reader, pid, m.Path}
	for _, of := range wanted {
		r.mu.Lock()
		w := r.plan(o, of)
		r.mu.Unlock()
		w.do() // which may take a while
		r.mu.Lock()
		r.finish(w)
		r.mu.Unlock()
	}
}
