// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// The limits of what is read of a machine: processes, and descriptors of each.
const (
	maxProcesses    = 1 << 16
	maxPerProcess   = 1 << 16
	maxSocketsOfNet = 1 << 20
)

// process is one of the machine.
type process struct {
	pid, parent uint32
	inner       uint32 // its id in its own PID namespace
}

// end is a descriptor of a process.
type end struct{ pid, fd uint32 }

// table has the processes of a machine and the descriptors that they share.
type table struct {
	processes []process
	ends      map[string][]end // by what the descriptor leads to
	networks  map[string]*network
	mapping   map[string][]uint32 // processes that map a file, by its id; read on first use
}

// load reads the table on first use.
func (r *Reader) load() *table {
	if r.table != nil {
		return r.table
	}
	t := &table{ends: map[string][]end{}, networks: map[string]*network{}, mapping: map[string][]uint32{}}
	r.table = t
	entries, err := os.ReadDir(r.ProcFS)
	if err != nil {
		return t
	}
	for _, e := range entries {
		pid, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil || len(t.processes) == maxProcesses {
			continue
		}
		if p, ok := r.process(uint32(pid)); ok {
			t.processes = append(t.processes, p)
			r.addEnds(t, p.pid)
		}
	}
	return t
}

func (r *Reader) processes() []process { return r.load().processes }

// process reads status: false if the process ended.
func (r *Reader) process(pid uint32) (process, bool) {
	p := process{pid: pid, inner: pid}
	b, err := readBounded(r.file(pid, "status"))
	if err != nil {
		return p, false
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		numbers := strings.Fields(value)
		if len(numbers) == 0 {
			continue
		}
		switch last, _ := strconv.ParseUint(numbers[len(numbers)-1], 10, 32); name {
		case "PPid":
			p.parent = uint32(last)
		case "NSpid":
			p.inner = uint32(last)
		}
	}
	return p, true
}

// addEnds adds a process's pipes, sockets and eventfds.
func (r *Reader) addEnds(t *table, pid uint32) {
	dir, err := os.Open(r.file(pid, "fd"))
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxPerProcess)
	for _, name := range names {
		fd, err := strconv.ParseUint(name, 10, 31)
		if err != nil {
			continue
		}
		link, err := os.Readlink(filepath.Join(dir.Name(), name))
		if err != nil {
			continue
		}
		if link == "anon_inode:[eventfd]" {
			link = "eventfd:" + r.info(pid, fd)["eventfd-id"]
		} else if !strings.HasPrefix(link, "pipe:[") && !strings.HasPrefix(link, "socket:[") {
			continue
		}
		t.ends[link] = append(t.ends[link], end{pid, uint32(fd)})
	}
}

// Ends is who can end a wait.
type Ends struct {
	// PIDs are other processes that have the other end, in order.
	PIDs []uint32
	// IsOwn: the process itself has the other end, too, or alone.
	IsOwn bool
	// Address is that of the other end on a network, if no process of this machine has it.
	Address string
}

// IsKnown reports whether anything is known to end the wait.
func (e Ends) IsKnown() bool { return len(e.PIDs) > 0 || e.IsOwn || e.Address != "" }

// Ends returns who can end a wait of a process for a resource.
func (r *Reader) Ends(pid uint32, res Resource) (e Ends) {
	if res.Kind == Lock {
		return Ends{IsOwn: true}
	}
	if res.ID == "" {
		return e
	}
	t := r.load()
	var all []uint32
	switch res.Kind {
	case Pipe:
		for _, end := range t.ends[res.ID] {
			if r.opens(end, res.Writes) {
				all = append(all, end.pid)
			}
		}
	case Socket:
		ids, address := r.peers(pid, res.ID)
		for _, id := range ids {
			for _, end := range t.ends[id] {
				all = append(all, end.pid)
			}
		}
		if len(all) == 0 {
			e.Address = address
		}
	case Event:
		for _, end := range t.ends[res.ID] {
			all = append(all, end.pid)
		}
	case Shared:
		all = r.mappers(t, res.ID)
	case Child:
		if child, err := strconv.ParseUint(strings.TrimPrefix(res.ID, "child:"), 10, 32); err == nil {
			all = []uint32{uint32(child)}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	e.IsOwn = slices.Contains(all, pid)
	e.PIDs = slices.DeleteFunc(all, func(other uint32) bool { return other == pid })
	return e
}

// opens reports whether a descriptor of a pipe is open for reading (or for writing).
func (r *Reader) opens(e end, reading bool) bool {
	flags, err := strconv.ParseUint(r.info(e.pid, uint64(e.fd))["flags"], 8, 32)
	if err != nil {
		return false
	}
	switch flags & 3 { // O_ACCMODE
	case 0:
		return reading
	case 1:
		return !reading
	}
	return true
}

// mappers are the processes that map a file.
func (r *Reader) mappers(t *table, id string) []uint32 {
	if pids, ok := t.mapping[id]; ok {
		return slices.Clone(pids)
	}
	var pids []uint32
	for _, p := range t.processes {
		found, err := r.maps.Read(p.pid, func(m procmaps.Mapping) bool {
			return m.Perms&procmaps.Shared != 0 && m.Inode != 0 && sharedID(m) == id
		})
		if err == nil && len(found) > 0 {
			pids = append(pids, p.pid)
		}
	}
	t.mapping[id] = pids
	return slices.Clone(pids) // Ends changes its list
}
