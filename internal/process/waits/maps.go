// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// maxName bounds the name of a file: a path may have 4,096 bytes.
const maxName = 512

// file is one that processes may share.
type file struct{ device, inode uint64 }

// sharedID is that of a file that several processes map. Two futexes in it are not
// distinguished: each process that maps the file may end each wait.
func sharedID(f file) string { return fmt.Sprintf("shared:%x:%d", f.device, f.inode) }

// mapped has what was read of the mappings of a process.
type mapped struct {
	files   []file              // shared ones, each once
	futexes map[uint64]Resource // by address
}

// futex returns the memory that a futex is in.
func (r *Reader) futex(pid uint32, address uint64) Resource {
	if m := r.mapped[pid]; m != nil {
		if res, ok := m.futexes[address]; ok {
			return res
		}
	}
	return r.readMaps(pid, []uint64{address}).futexes[address]
}

// readMaps reads the mappings of a process, which takes up to 35 ms, for all addresses at once.
func (r *Reader) readMaps(pid uint32, addresses []uint64) *mapped {
	addresses = slices.Clone(addresses)
	slices.Sort(addresses)
	m := &mapped{futexes: map[uint64]Resource{}}
	r.mapped[pid] = m
	for _, address := range addresses {
		m.futexes[address] = Resource{Kind: Lock, Name: "a lock"}
	}
	if !r.may(pid, 0) {
		return m
	}
	r.reads++
	lines, files := int64(0), map[file]bool{} // of the goroutine that reads, until it has ended
	began := time.Now()
	found, err := r.maps.Read(pid, func(m procmaps.Mapping) bool {
		lines++
		if m.Perms&procmaps.Shared != 0 && m.Inode != 0 {
			files[file{m.Device, m.Inode}] = true
		}
		at, _ := slices.BinarySearch(addresses, m.Start)
		return at < len(addresses) && addresses[at] < m.End
	})
	if err != nil {
		r.take(pid, procmaps.Cost(0))
		if errors.Is(err, procmaps.ErrStuck) {
			r.take(pid, time.Since(began))
		}
		return m
	}
	r.take(pid, procmaps.Cost(lines)+time.Duration(len(files))*linkCost)
	for f := range files {
		m.files = append(m.files, f)
	}
	for _, address := range addresses {
		if at, ok := slices.BinarySearchFunc(found, address, covers); ok {
			m.futexes[address] = inMapping(found[at])
		}
	}
	return m
}

// covers compares a mapping with an address.
func covers(m procmaps.Mapping, address uint64) int {
	switch {
	case m.End <= address:
		return -1
	case m.Start > address:
		return 1
	}
	return 0
}

func inMapping(m procmaps.Mapping) Resource {
	if m.Perms&procmaps.Shared == 0 || m.Inode == 0 {
		return Resource{Kind: Lock, Name: "a lock of its process"}
	}
	name := m.Path
	if name == "" || strings.HasPrefix(name, "/dev/zero") {
		name = "shared memory"
	}
	return Resource{Kind: Shared, ID: sharedID(file{m.Device, m.Inode}), Name: strings.Clone(name[:min(len(name), maxName)])}
}

// mappers are the processes that map a file. The mappings of all processes are read on first use, of each once.
func (r *Reader) mappers(t *table, id string) []uint32 {
	if t.mapping == nil {
		t.mapping = map[file][]uint32{}
		for _, p := range t.processes {
			m := r.mapped[p.pid]
			if m == nil {
				m = r.readMaps(p.pid, nil)
			}
			for _, f := range m.files {
				t.mapping[f] = append(t.mapping[f], p.pid)
			}
			m.files = nil
		}
	}
	var f file
	if _, err := fmt.Sscanf(id, "shared:%x:%d", &f.device, &f.inode); err != nil {
		return nil
	}
	return slices.Clone(t.mapping[f]) // Ends changes its list
}
