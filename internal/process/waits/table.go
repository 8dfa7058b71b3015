// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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

// end has a process's descriptors that lead to the same.
type end struct {
	pid           uint32
	reads, writes bool // of a pipe
}

// table has the processes of a machine and the descriptors that they share.
type table struct {
	processes []process
	ends      map[string][]end // by what the descriptor leads to
	networks  map[string]*network
	children  map[uint32][]process
	mapping   map[file][]uint32 // processes that map a file; read on first use
}

// load reads the table on first use.
func (r *Reader) load() *table {
	if r.table != nil {
		return r.table
	}
	t := &table{ends: map[string][]end{}, networks: map[string]*network{}, children: map[uint32][]process{}}
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
			t.children[p.parent] = append(t.children[p.parent], p)
			r.addEnds(t, p.pid)
		}
	}
	return t
}

// process reads status: false if the process ended, or its tenant has cost too much.
func (r *Reader) process(pid uint32) (process, bool) {
	p := process{pid: pid, inner: pid}
	if !r.may(pid, statusCost) {
		return p, false
	}
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
		if !r.may(pid, linkCost) {
			return
		}
		path := filepath.Join(dir.Name(), name)
		link, err := os.Readlink(path)
		if err != nil {
			continue
		}
		e := end{pid: pid}
		switch {
		case link == "anon_inode:[eventfd]":
			link = "eventfd:" + r.info(pid, fd)["eventfd-id"]
		case strings.HasPrefix(link, "pipe:["):
			// The permissions of the link are how the pipe was opened: proc_pid_fd(5).
			info, err := os.Lstat(path)
			if err != nil {
				continue
			}
			e.reads, e.writes = info.Mode()&0o400 != 0, info.Mode()&0o200 != 0
		case !strings.HasPrefix(link, "socket:["):
			continue
		}
		r.take(pid, linkCost)
		t.add(link, e)
	}
}

// add takes in a descriptor. All those of a process come one after another.
func (t *table) add(link string, e end) {
	all := t.ends[link]
	if last := len(all) - 1; last >= 0 && all[last].pid == e.pid {
		all[last].reads, all[last].writes = all[last].reads || e.reads, all[last].writes || e.writes
		return
	}
	t.ends[link] = append(all, e)
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

// Ends returns who can end a wait of a process for a resource. That is not known if its tenant has cost too much.
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
			if res.Writes && end.reads || !res.Writes && end.writes {
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
	if !r.may(pid, time.Duration(len(all))*pidCost) {
		return Ends{}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	e.IsOwn = slices.Contains(all, pid)
	e.PIDs = slices.DeleteFunc(all, func(other uint32) bool { return other == pid })
	return e
}
