// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"runtime/debug"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/recent"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// knownFiles bounds the files of all processes, twice: each container of an image has
	// files of its own.
	knownFiles  = 16 << 10
	knownPlaces = 64 << 10 // of 160 processes of a job with 400 libraries each, twice
	// wantedTables bounds the tables that are to be read with the next process.
	wantedTables = 1 << 10
	// learning bounds the processes that wait for their files to be read, the last quarter of which is for tenants
	// with few. One that does not get a turn is read when a frame of it is to be named.
	learning = 256
)

// loaded is a module as far as it could be read: module nil if it could not, or, of a file that is known, if it is no library.
type loaded struct {
	module  *module.Module
	buildID string
	file    string // which one it is: procmaps.File.Identity
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

// fileKey is a file as the mappings of processes name it. It may be another file a moment later: one that is built again
// gets the inode of the one before, which was removed for it.
type fileKey struct {
	device, inode uint64
	path          string
}

// place is where a process has mapped a file, which stays that one as long as it is mapped.
type place struct {
	pid          uint32
	start, inode uint64
}

// files is the state of files, whichever process had them: a process that lives for a
// part of a second is gone when its rows are read, and nothing can be opened any more.
type files struct {
	byKey   *recent.Cache[fileKey, *loaded] // as it was read last
	byPlace *recent.Cache[place, *loaded]
	wanted  *recent.Cache[string, bool] // tables that could not be read when they were needed

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
	return files{
		byKey:   recent.New[fileKey, *loaded](knownFiles),
		byPlace: recent.New[place, *loaded](knownPlaces),
		wanted:  recent.New[string, bool](wantedTables),
	}
}

func keyOf(m procmaps.Mapping) fileKey { return fileKey{m.Device, m.Inode, m.Path} }

func placeOf(pid uint32, m procmaps.Mapping) place { return place{pid, m.Start, m.Inode} }

// known has the facts of a mapping's file that were read for its process, or else for another one.
func (f *files) known(pid uint32, m procmaps.Mapping) *loaded {
	if l, ok := f.byPlace.Get(placeOf(pid, m)); ok {
		return l
	}
	if l, ok := f.byKey.Get(keyOf(m)); ok {
		return l
	}
	return &loaded{}
}

// put keeps the facts of a file that a process has mapped.
func (f *files) put(pid uint32, l *loaded, all ...procmaps.Mapping) {
	if l.file != "" {
		f.byKey.Put(keyOf(all[0]), l)
	}
	for _, m := range all {
		f.byPlace.Put(placeOf(pid, m), l)
	}
}

// want has the table read when the next process comes that has it mapped.
func (f *files) want(table string) { f.wanted.Put(table, true) }

// open reads the parts of a file that show where its code was linked, and returns the processor time that it took. One that
// is no library has no module; with an error, it may be one.
func open(file *procmaps.File) (l *loaded, reader *recorder, cost time.Duration, err error) {
	l, reader = &loaded{}, record(file)
	cost = throttle.Timed(func() { l.module, err = module.Open(reader, reader.size) })
	switch {
	case err == nil:
		l.buildID, l.file = l.module.BuildID(), file.Identity()
	case !reader.short:
		l.file, err = file.Identity(), nil
	}
	return l, reader, cost, err
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
