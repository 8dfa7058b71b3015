// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"container/list"
	"errors"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"time"
)

// ErrGone is in the chain of the error about a process that does not exist.
var ErrGone = errors.New("no such process")

// Process identifies a process until the machine restarts; a pid alone is
// reused.
type Process struct {
	PID uint32
	// StartTime is field 22 of /proc/PID/stat: clock ticks since boot.
	StartTime uint64
}

// Snapshot is the code of a process at one moment: its executable mappings, sorted by
// address. It is immutable once returned.
type Snapshot struct {
	Process   Process
	Taken     time.Time
	Mappings  []Mapping
	Truncated bool
}

// Find returns the mapping that covers addr.
func (s *Snapshot) Find(addr uint64) (Mapping, bool) {
	i := sort.Search(len(s.Mappings), func(i int) bool { return s.Mappings[i].End > addr })
	if i == len(s.Mappings) || addr < s.Mappings[i].Start {
		return Mapping{}, false
	}
	return s.Mappings[i], true
}

// Around returns the mappings of files nearest to addr below it and above it, those there are.
func (s *Snapshot) Around(addr uint64) []Mapping {
	i := sort.Search(len(s.Mappings), func(i int) bool { return s.Mappings[i].End > addr })
	var out []Mapping
	for below := i - 1; below >= 0; below-- {
		if s.Mappings[below].IsFile() {
			out = append(out, s.Mappings[below])
			break
		}
	}
	for _, m := range s.Mappings[i:] {
		if m.IsFile() {
			return append(out, m)
		}
	}
	return out
}

// Config of a Cache. The zero value is good for the machine's own /proc.
type Config struct {
	// ProcFS is where the host's procfs is mounted; default /proc.
	ProcFS string
	// MaxProcesses bounds the snapshots kept, exited processes included;
	// default 2048. One of a large Python process is about 100 KiB.
	MaxProcesses int
	// MaxExited bounds the snapshots of processes that have exited; default
	// 512. The one that exited first is dropped first.
	MaxExited int
	// MinRefresh is the age from which on a snapshot is read again for an address
	// that it does not cover; default 1 s.
	MinRefresh time.Duration
}

// Cache holds one snapshot per process. It is safe for concurrent use.
type Cache struct {
	cfg   Config
	taken func(*Snapshot)
	guard guard

	mu       sync.Mutex
	byPID    map[uint32]*entry // the newest process of that pid
	running  *list.List        // of *entry; front: used last
	exited   *list.List        // of *entry; front: exited last
	byExited map[Process]*entry
	reading  map[uint32]*reads // pids whose maps are being read
}

type entry struct {
	snapshot *Snapshot
	element  *list.Element
	exited   bool
	stale    bool
}

// NewCache returns an empty cache.
func NewCache(cfg Config) *Cache {
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	if cfg.MaxProcesses <= 0 {
		cfg.MaxProcesses = 2048
	}
	if cfg.MaxExited <= 0 {
		cfg.MaxExited = 512
	}
	if cfg.MinRefresh <= 0 {
		cfg.MinRefresh = time.Second
	}
	return &Cache{
		cfg:      cfg,
		byPID:    map[uint32]*entry{},
		byExited: map[Process]*entry{},
		reading:  map[uint32]*reads{},
		running:  list.New(),
		exited:   list.New(),
	}
}

// Snapshot reads the mappings of a process now and keeps them. A process that has exited
// gives ErrGone, and its last snapshot is kept.
func (c *Cache) Snapshot(pid uint32) (*Snapshot, error) {
	s, err := c.read(pid)
	if err != nil {
		if errors.Is(err, ErrGone) {
			c.Exited(pid)
		}
		return nil, err
	}
	c.mu.Lock()
	c.keep(s)
	c.mu.Unlock()
	if c.taken != nil {
		c.taken(s)
	}
	return s, nil
}

// OnSnapshot has f called with each new snapshot while its process exists. It must return
// soon. Set it before the cache is used.
func (c *Cache) OnSnapshot(f func(*Snapshot)) { c.taken = f }

// Find returns the executable mapping that covers addr in the newest known
// process with that pid, running or exited. A process seen for the first time
// is read; one whose snapshot does not cover addr is read again, at most once
// per Config.MinRefresh.
func (c *Cache) Find(pid uint32, addr uint64) (Mapping, bool) {
	c.mu.Lock()
	e := c.byPID[pid]
	if e != nil {
		m, ok := e.snapshot.Find(addr)
		fresh := time.Since(e.snapshot.Taken) < c.cfg.MinRefresh
		if !e.exited {
			c.running.MoveToFront(e.element)
		}
		if e.exited || (!e.stale && (ok || fresh)) {
			c.mu.Unlock()
			return m, ok
		}
	}
	c.mu.Unlock()

	s, err := c.Snapshot(pid)
	if err == nil {
		return s.Find(addr)
	}
	if e != nil { // exited since: the kept snapshot is the best available
		return e.snapshot.Find(addr)
	}
	return Mapping{}, false
}

// Around returns the executable mappings of files nearest to addr in the process that Find would
// search, without reading anything: data of a file is next to its code.
func (c *Cache) Around(pid uint32, addr uint64) []Mapping {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byPID[pid]; e != nil {
		return e.snapshot.Around(addr)
	}
	return nil
}

// Lookup is Find in the process p, without reading anything, even after its pid was
// reused.
func (c *Cache) Lookup(p Process, addr uint64) (Mapping, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byExited[p]; e != nil {
		return e.snapshot.Find(addr)
	}
	if e := c.byPID[p.PID]; e != nil && e.snapshot.Process == p {
		return e.snapshot.Find(addr)
	}
	return Mapping{}, false
}

// Stale marks a process that called exec: its snapshot is of another program, so the next
// Find reads it again for any address.
func (c *Cache) Stale(pid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byPID[pid]; e != nil {
		e.stale = true
	}
}

// Exited marks a process as ended: its snapshot is kept among the exited.
func (c *Cache) Exited(pid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byPID[pid]; e != nil {
		c.retire(e)
	}
}

// keep stores s; the lock is held.
func (c *Cache) keep(s *Snapshot) {
	if e := c.byPID[s.Process.PID]; e != nil {
		if e.snapshot.Process == s.Process && !e.exited {
			e.snapshot, e.stale = s, false
			c.running.MoveToFront(e.element)
			return
		}
		c.retire(e)
	}
	e := &entry{snapshot: s}
	e.element = c.running.PushFront(e)
	c.byPID[s.Process.PID] = e
	for c.running.Len()+c.exited.Len() > c.cfg.MaxProcesses {
		if c.exited.Len() > 0 {
			c.forget(c.exited.Back().Value.(*entry))
		} else {
			c.forget(c.running.Back().Value.(*entry))
		}
	}
}

// retire moves a process to the exited; the lock is held.
func (c *Cache) retire(e *entry) {
	if e.exited {
		return
	}
	c.running.Remove(e.element)
	e.exited = true
	e.element = c.exited.PushFront(e)
	c.byExited[e.snapshot.Process] = e
	for c.exited.Len() > c.cfg.MaxExited {
		c.forget(c.exited.Back().Value.(*entry))
	}
}

// forget drops a process; the lock is held.
func (c *Cache) forget(e *entry) {
	if e.exited {
		c.exited.Remove(e.element)
		delete(c.byExited, e.snapshot.Process)
	} else {
		c.running.Remove(e.element)
	}
	if c.byPID[e.snapshot.Process.PID] == e {
		delete(c.byPID, e.snapshot.Process.PID)
	}
}

// read takes a snapshot. The start time is read before and after the maps: if it differs,
// the pid was reused in between.
func (c *Cache) read(pid uint32) (*Snapshot, error) {
	for try := 0; ; try++ {
		start, err := StartTime(c.cfg.ProcFS, pid)
		if err != nil {
			return nil, err
		}
		s := &Snapshot{Process: Process{pid, start}, Taken: time.Now()}
		s.Mappings, err = c.Read(pid, func(m Mapping) bool { return m.Perms&Exec != 0 })
		if err != nil {
			return nil, err
		}
		s.Truncated = len(s.Mappings) == maxMappings
		again, err := StartTime(c.cfg.ProcFS, pid)
		if err != nil {
			return nil, err
		}
		if again == start || try > 0 {
			return s, nil
		}
	}
}

func (c *Cache) path(pid uint32, name string) string {
	return filepath.Join(c.cfg.ProcFS, strconv.FormatUint(uint64(pid), 10), name)
}
