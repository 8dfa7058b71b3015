// SPDX-License-Identifier: Apache-2.0

// Package waits reads what the threads of processes wait for in the kernel, and which other
// processes can end the wait: those that have the other end of a pipe or socket, map the
// same shared memory, or are the children waited for. It reads /proc, the addresses that a
// system call was given, and the kernel's socket tables; no process is stopped. What it
// reads of a process is bounded.
package waits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Kind is the kind of a resource.
type Kind string

// The kinds. Timer, Lock and Other have no other end.
const (
	Pipe   Kind = "pipe"
	Socket Kind = "socket"
	Event  Kind = "eventfd"
	Shared Kind = "shared memory" // a futex in it: a semaphore, a lock, a condition
	Child  Kind = "child"
	Lock   Kind = "lock" // a futex in the process's own memory
	Device Kind = "device"
	Timer  Kind = "timer"
	Other  Kind = "other"
)

// Resource is one thing whose change ends a wait.
type Resource struct {
	Kind Kind
	// ID is equal for all processes that share it; empty: it is not shared.
	ID string
	// Name is a path, or the kind of a descriptor.
	Name string
	// Writes: the thread waits for room, and a reader ends the wait.
	Writes bool
}

// Wait has the resources that a thread waits for: any of them ends the wait.
type Wait struct {
	PID, TID uint32
	// Syscall is the system call that it sleeps in; empty: it runs, or sleeps elsewhere in
	// the kernel, such as in a page fault.
	Syscall string
	For     []Resource
}

// The limits of what is read of one wait.
const (
	maxDescriptors = 256
	maxTasks       = 4096
	maxFile        = 64 << 10 // of files in /proc that list descriptors
)

// Reader reads waits. It reads the machine's processes and their descriptors once, so that it
// is for one look; it is not for several goroutines.
type Reader struct {
	ProcFS string

	maps  *procmaps.Cache
	table *table // of processes and the ends that they have; read on first use
}

// NewReader returns a reader.
func NewReader(procfs string) *Reader {
	return &Reader{ProcFS: procfs, maps: procmaps.NewCache(procmaps.Config{ProcFS: procfs})}
}

// Read returns what a thread waits for now. A thread that ended is fs.ErrNotExist.
func (r *Reader) Read(pid, tid uint32) (Wait, error) {
	w := Wait{PID: pid, TID: tid}
	text, err := memory.ReadFile(r.ProcFS, pid, filepath.Join("task", strconv.FormatUint(uint64(tid), 10), "syscall"), maxFile)
	if err != nil {
		return w, fmt.Errorf("read the system call of thread %d: %w", tid, err)
	}
	now, ok := parseSyscall(string(text))
	if !ok {
		return w, nil // it runs, or is in no system call
	}
	known, ok := callOf(now.number)
	if !ok {
		w.Syscall = fmt.Sprintf("system call %d", now.number)
		w.For = []Resource{{Kind: Other, Name: w.Syscall}}
		return w, nil
	}
	w.Syscall, w.For = known.name, known.read(r, pid, now.arguments)
	return w, nil
}

// ReadAll returns what all threads of a process wait for, at most maxTasks of them; those that
// end meanwhile are left out.
func (r *Reader) ReadAll(pid uint32) map[uint32]Wait {
	all := map[uint32]Wait{}
	dir, err := os.Open(r.file(pid, "task"))
	if err != nil {
		return all
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxTasks)
	for _, name := range names {
		tid, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			continue
		}
		if w, err := r.Read(pid, uint32(tid)); err == nil {
			all[uint32(tid)] = w
		}
	}
	return all
}

func (r *Reader) file(pid uint32, parts ...string) string {
	return filepath.Join(append([]string{r.ProcFS, strconv.FormatUint(uint64(pid), 10)}, parts...)...)
}

// descriptor returns the resource that a descriptor of a process leads to.
func (r *Reader) descriptor(pid uint32, fd uint64, writes bool) Resource {
	number := strconv.FormatInt(int64(int32(fd)), 10)
	link, err := os.Readlink(r.file(pid, "fd", number))
	if err != nil {
		return Resource{Kind: Other, Name: "descriptor " + number}
	}
	res := Resource{Kind: Other, Name: link, Writes: writes}
	switch {
	case strings.HasPrefix(link, "pipe:["):
		res.Kind, res.ID, res.Name = Pipe, link, "a pipe"
	case strings.HasPrefix(link, "socket:["):
		res.Kind, res.ID, res.Name = Socket, link, "a socket"
	case link == "anon_inode:[eventfd]":
		res.Kind, res.Name = Event, "an eventfd"
		if id := r.info(pid, fd)["eventfd-id"]; id != "" {
			res.ID = "eventfd:" + id
		}
	case link == "anon_inode:[timerfd]":
		res.Kind, res.Name = Timer, "a timer"
	case strings.HasPrefix(link, "/dev/"):
		res.Kind = Device
	}
	return res
}

// info is fdinfo of a descriptor: the first line of each name.
func (r *Reader) info(pid uint32, fd uint64) map[string]string {
	out := map[string]string{}
	for _, line := range r.infoLines(pid, fd) {
		name, value, ok := strings.Cut(line, ":")
		if _, known := out[name]; ok && !known {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

// infoLines are those of fdinfo. What the kernel writes there comes from the file: of an epoll descriptor it waits for a
// lock that a thread holds while a file system of its own does not answer.
func (r *Reader) infoLines(pid uint32, fd uint64) []string {
	name := filepath.Join("fdinfo", strconv.FormatInt(int64(int32(fd)), 10))
	b, err := memory.ReadFile(r.ProcFS, pid, name, maxFile)
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}

// memory reads a process's memory; nil if it cannot be read.
func (r *Reader) memory(pid uint32, address uint64, size int) []byte {
	from, err := memory.Open(r.ProcFS, pid)
	if err != nil {
		return nil
	}
	defer from.Close()
	b := make([]byte, size)
	if n, err := from.ReadAt(b, int64(address)); err != nil || n != size {
		return nil
	}
	return b
}

// futex returns the memory that a futex is in.
func (r *Reader) futex(pid uint32, address uint64) Resource {
	found, err := r.maps.Read(pid, func(m procmaps.Mapping) bool { return m.Start <= address && address < m.End })
	if err != nil || len(found) == 0 {
		return Resource{Kind: Lock, Name: "a lock"}
	}
	m := found[0]
	if m.Perms&procmaps.Shared == 0 || m.Inode == 0 {
		return Resource{Kind: Lock, Name: "a lock of its process"}
	}
	name := m.Path
	if name == "" || strings.HasPrefix(name, "/dev/zero") {
		name = "shared memory"
	}
	return Resource{Kind: Shared, ID: sharedID(m), Name: name}
}

// sharedID is that of a file that several processes map. Two futexes in it are not
// distinguished: each process that maps the file may end each wait.
func sharedID(m procmaps.Mapping) string { return fmt.Sprintf("shared:%x:%d", m.Device, m.Inode) }

// pollSet are the descriptors of poll(): {int fd; short events, revents}.
func (r *Reader) pollSet(pid uint32, address, count uint64) (all []Resource) {
	n := int(min(count, maxDescriptors))
	b := r.memory(pid, address, n*8)
	if b == nil {
		return []Resource{{Kind: Other, Name: "descriptors"}}
	}
	for ; len(b) > 0; b = b[8:] {
		fd := int32(binary.NativeEndian.Uint32(b))
		events := binary.NativeEndian.Uint16(b[4:])
		if fd >= 0 {
			all = append(all, r.descriptor(pid, uint64(fd), events&pollIn == 0 && events&pollOut != 0))
		}
	}
	return orTimer(all)
}

const (
	pollIn  = 1
	pollOut = 4
)

// selectSet are the descriptors of select(), in the order of its sets.
func (r *Reader) selectSet(pid uint32, count, reads, writes uint64) (all []Resource) {
	n := int(min(count, 1024))
	for _, set := range []struct {
		address uint64
		writes  bool
	}{{reads, false}, {writes, true}} {
		if set.address == 0 || n == 0 {
			continue
		}
		b := r.memory(pid, set.address, (n+63)/64*8)
		for fd := range n {
			if b != nil && b[fd/8]&(1<<(fd%8)) != 0 && len(all) < maxDescriptors {
				all = append(all, r.descriptor(pid, uint64(fd), set.writes))
			}
		}
	}
	return orTimer(all)
}

// epollSet are the descriptors that an epoll descriptor watches.
func (r *Reader) epollSet(pid uint32, fd uint64) (all []Resource) {
	lines := r.infoLines(pid, fd)
	if lines == nil {
		return []Resource{{Kind: Other, Name: "descriptors"}}
	}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "tfd:" || fields[2] != "events:" || len(all) == maxDescriptors {
			continue
		}
		watched, err := strconv.ParseUint(fields[1], 10, 31)
		events, err2 := strconv.ParseUint(fields[3], 16, 32)
		if errors.Join(err, err2) == nil {
			all = append(all, r.descriptor(pid, watched, events&pollIn == 0 && events&pollOut != 0))
		}
	}
	return orTimer(all)
}

// orTimer: a call without descriptors only waits for its timeout.
func orTimer(all []Resource) []Resource {
	if len(all) == 0 {
		return []Resource{{Kind: Timer, Name: "a timer"}}
	}
	slices.SortStableFunc(all, func(a, b Resource) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b Resource) bool { return a == b })
}
