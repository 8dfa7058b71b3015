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
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
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
	// IsTimed: it ends by itself after a time, whatever it waits for.
	IsTimed bool
}

// The limits of what is read of one wait, and of the threads of a process.
const (
	maxDescriptors = 256
	maxTasks       = 4096
	maxResources   = 1 << 14
	maxFile        = 64 << 10 // of files in /proc that list descriptors
)

// Reader reads waits. It reads the machine's processes and their descriptors once, so that it
// is for one look; it is not for several goroutines.
type Reader struct {
	ProcFS string

	maps     *procmaps.Cache
	spent    *throttle.Allowances[procmaps.Tenant] // in earlier looks
	began    time.Time
	accounts map[procmaps.Tenant]*account
	tenants  map[uint32]procmaps.Tenant
	mapped   map[uint32]*mapped
	reads    int    // of mappings
	table    *table // of processes and the ends that they have; read on first use
}

// NewReader returns a reader.
func NewReader(procfs string) *Reader {
	return newReader(procfs, procmaps.NewCache(procmaps.Config{ProcFS: procfs}), newSpent())
}

func newReader(procfs string, maps *procmaps.Cache, spent *throttle.Allowances[procmaps.Tenant]) *Reader {
	return &Reader{
		ProcFS: procfs, maps: maps, spent: spent, began: time.Now(),
		accounts: map[procmaps.Tenant]*account{}, tenants: map[uint32]procmaps.Tenant{}, mapped: map[uint32]*mapped{},
	}
}

// Read returns what a thread waits for now. A thread that ended is fs.ErrNotExist.
func (r *Reader) Read(pid, tid uint32) (Wait, error) {
	c, ok, err := r.call(pid, tid)
	if err != nil || !ok {
		return Wait{PID: pid, TID: tid}, err
	}
	return r.wait(pid, tid, c), nil
}

// call reads the system call that a thread sleeps in: false if it runs, is in none, or its tenant has cost too much.
func (r *Reader) call(pid, tid uint32) (c syscallArguments, ok bool, err error) {
	if !r.may(pid, infoCost) {
		return c, false, nil
	}
	name := filepath.Join("task", strconv.FormatUint(uint64(tid), 10), "syscall")
	text, err := memory.ReadFileOf(r.ProcFS, pid, r.Tenant(pid), name, maxFile)
	if err != nil {
		return c, false, fmt.Errorf("read the system call of thread %d: %w", tid, err)
	}
	c, ok = parseSyscall(string(text))
	return c, ok, nil
}

// wait returns what a thread waits for in a system call; nothing if its tenant has cost too much.
func (r *Reader) wait(pid, tid uint32, now syscallArguments) Wait {
	w := Wait{PID: pid, TID: tid}
	known, ok := callOf(now.number)
	switch {
	case !r.may(pid, 0):
	case ok:
		w.Syscall, w.For, w.IsTimed = known.name, known.read(r, pid, now.arguments), now.isTimed()
	default:
		w.Syscall = fmt.Sprintf("system call %d", now.number)
		w.For = []Resource{{Kind: Other, Name: w.Syscall}}
	}
	return w
}

// ReadAll returns what all threads of a process wait for, at most maxTasks of them; those that
// end meanwhile are left out. A thread of which that is not read, because its tenant has cost too much, waits for nothing.
func (r *Reader) ReadAll(pid uint32) map[uint32]Wait { return r.readAll(pid, r.threads(pid)) }

// ReadDeciding returns those of ReadAll that Edges takes.
func (r *Reader) ReadDeciding(pid uint32) map[uint32]Wait {
	c, ok, err := r.call(pid, pid)
	switch {
	case err == nil && !ok:
		return map[uint32]Wait{pid: {PID: pid, TID: pid}}
	case err == nil && c.number != unix.SYS_FUTEX:
		return map[uint32]Wait{pid: r.wait(pid, pid, c)}
	}
	all := r.ReadAll(pid)
	if main, ok := all[pid]; ok && !main.isLocked() {
		return map[uint32]Wait{pid: main}
	}
	return all
}

// threads are those of a process, the main thread first.
func (r *Reader) threads(pid uint32) []uint32 {
	dir, err := os.Open(r.file(pid, "task"))
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxTasks)
	var all []uint32
	for _, name := range names {
		if tid, err := strconv.ParseUint(name, 10, 32); err == nil {
			all = append(all, uint32(tid))
		}
	}
	slices.Sort(all)
	if at, ok := slices.BinarySearch(all, pid); ok {
		all = slices.Insert(slices.Delete(all, at, at+1), 0, pid)
	}
	return all
}

func (r *Reader) readAll(pid uint32, tids []uint32) map[uint32]Wait {
	all, calls, futexes := map[uint32]Wait{}, map[uint32]syscallArguments{}, []uint64(nil)
	for _, tid := range tids {
		c, ok, err := r.call(pid, tid)
		if err != nil {
			continue
		}
		all[tid] = Wait{PID: pid, TID: tid}
		if ok {
			calls[tid] = c
		}
		if ok && c.number == unix.SYS_FUTEX {
			futexes = append(futexes, c.arguments[0])
		}
	}
	if len(futexes) > 0 {
		r.readMaps(pid, futexes)
	}
	resources := 0
	for _, tid := range tids {
		if c, ok := calls[tid]; ok && resources < maxResources {
			w := r.wait(pid, tid, c)
			resources += len(w.For)
			all[tid] = w
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
	r.take(pid, linkCost)
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
	r.take(pid, infoCost)
	b, err := memory.ReadFileOf(r.ProcFS, pid, r.Tenant(pid), name, maxFile)
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}

// memory reads a process's memory; nil if it cannot be read.
func (r *Reader) memory(pid uint32, address uint64, size int) []byte {
	r.take(pid, 2*infoCost)
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
