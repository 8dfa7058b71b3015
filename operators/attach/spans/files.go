// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"fmt"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

const (
	// maxFiles and maxPlaces bound the memory for files that were read; forgotten ones are read again.
	maxFiles  = 32 << 10
	maxPlaces = 128 << 10
	// fileCost is the processor time to read a file, checkCost to find out whether it is one that was read.
	fileCost  = 50 * time.Microsecond
	checkCost = 10 * time.Microsecond
)

// files are those that were read. One that is built again may have device, inode and path of the one before; one that a
// process has mapped stays what it is.
type files struct {
	byKey   map[fileKey]*file // as it was read last
	byPlace map[place]*file
}

// fileKey identifies a file in the maps of processes.
type fileKey struct {
	device, inode uint64
	path          string
}

// place is where a program that runs in a process has mapped a file.
type place struct {
	pid                      uint32
	startStack, start, inode uint64
}

func newFiles() files { return files{byKey: map[fileKey]*file{}, byPlace: map[place]*file{}} }

// makeRoom forgets all files when there are too many.
func (fs *files) makeRoom() {
	if len(fs.byKey) > maxFiles || len(fs.byPlace) > maxPlaces {
		*fs = newFiles()
	}
}

// find takes a program's own variable before a library's, as the dynamic linker does,
// and of libraries the one that is mapped lowest.
func (f *Follower) find(pid uint32, start uint64, mappings []procmaps.Mapping, musl bool) (found Source, where string) {
	mappings = firstOfEach(mappings)
	for i, file := range f.filesOf(pid, start, mappings) {
		m, err := mappings[i], file.err
		if file.module == nil && err == nil {
			continue
		}
		var s Source
		if err == nil {
			s, err = file.source(m, start)
		}
		if err == nil && musl && s.Access > accesses[2] {
			err = errCLibrary
		}
		if err != nil {
			f.report(pid, f.cfg.Warn, m.Path, fmt.Sprintf("%s publishes spans that cannot be read: %v", m.Path, err))
			continue
		}
		if found.Access == 0 || file.found.IsProgram {
			found, where = s, m.Path
		}
	}
	return found, where
}

// firstOfEach returns the lowest mapping of each file.
func firstOfEach(mappings []procmaps.Mapping) (first []procmaps.Mapping) {
	seen := map[fileKey]bool{}
	for _, m := range mappings {
		if key := keyOf(m); !seen[key] {
			seen[key] = true
			first = append(first, m)
		}
	}
	return first
}

func keyOf(m procmaps.Mapping) fileKey { return fileKey{m.Device, m.Inode, m.Path} }

// filesOf returns the facts of files that a process has mapped, in their order.
func (f *Follower) filesOf(pid uint32, startStack uint64, all []procmaps.Mapping) []*file {
	f.files.makeRoom()
	out := make([]*file, len(all))
	var unchecked []procmaps.Mapping
	var at []int // of unchecked, in all
	for i, m := range all {
		if out[i] = f.files.byPlace[place{pid, startStack, m.Start, m.Inode}]; out[i] == nil {
			unchecked, at = append(unchecked, m), append(at, i)
		}
	}
	f.cost += time.Duration(len(unchecked)) * checkCost
	for i, identity := range f.cfg.Processes.Identities(pid, unchecked) {
		out[at[i]] = f.file(pid, startStack, unchecked[i], identity)
	}
	return out
}

// file returns the facts of a file that was not checked yet; identity is which one it is, empty if it has to be opened.
func (f *Follower) file(pid uint32, startStack uint64, m procmaps.Mapping, identity string) *file {
	known := f.files.byKey[keyOf(m)]
	if known == nil || known.identity != identity {
		f.cost += fileCost
		opened, err := f.cfg.Processes.Open(pid, m)
		if err != nil {
			return &file{} // removed, or unreadable; read again next time
		}
		defer opened.Close()
		if known = parse(opened); known.hangs {
			return known // so is this
		}
		f.files.byKey[keyOf(m)] = known
	}
	f.files.byPlace[place{pid, startStack, m.Start, m.Inode}] = known
	return known
}
