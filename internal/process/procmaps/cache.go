// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"container/list"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// ErrGone is in the chain of the error about a process that does not exist.
var ErrGone = errors.New("no such process")

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
	// MaxBytes bounds all of them; default 64 MiB. A tenant that has more than a quarter
	// of the bytes, or of the processes, makes room by its own.
	MaxBytes int
	// MinRefresh is the age from which on a snapshot is read again for an address
	// that it does not cover; default 1 s.
	MinRefresh time.Duration
}

// Cache holds one snapshot per process. It is safe for concurrent use.
type Cache struct {
	cfg   Config
	taken func(*Snapshot)
	guard Guard
	// noQueries: the kernel answers none (query).
	noQueries atomic.Bool

	mu       sync.Mutex
	byPID    map[uint32]*entry // the newest process of that pid
	running  *list.List        // of *entry; front: used last
	exited   *list.List        // of *entry; front: exited last
	byExited map[Process]*entry
	bytes    int
	byTenant map[Tenant]*share
	reading  map[uint32]*reads // pids whose maps are being read
	spent    throttle.Allowances[Tenant]
}

// share has the part of the cache that is a tenant's.
type share struct{ bytes, processes int }

type entry struct {
	snapshot *Snapshot
	tenant   Tenant
	bytes    int
	element  *list.Element
	exited   bool
	stale    bool
	changed  time.Time // when it has last mapped something, as far as that was reported
	checked  time.Time // when it had its pid still, or that was of no interest yet
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
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 64 << 20
	}
	if cfg.MinRefresh <= 0 {
		cfg.MinRefresh = time.Second
	}
	return &Cache{
		cfg:      cfg,
		byPID:    map[uint32]*entry{},
		byExited: map[Process]*entry{},
		byTenant: map[Tenant]*share{},
		spent:    throttle.Allowances[Tenant]{Burst: findBurst, Share: findShare},
		reading:  map[uint32]*reads{},
		running:  list.New(),
		exited:   list.New(),
	}
}

// Snapshot reads the mappings of a process now and keeps them. A process that has exited
// gives ErrGone, and its last snapshot is kept.
func (c *Cache) Snapshot(pid uint32) (*Snapshot, error) { return c.snapshot(pid, c.tenantNow(pid)) }

func (c *Cache) snapshot(pid uint32, tenant Tenant) (*Snapshot, error) {
	s, err := c.Look(pid, nil)
	if err != nil {
		if errors.Is(err, ErrGone) {
			c.Exited(pid)
		}
		return nil, err
	}
	c.Keep(s, tenant)
	return s, nil
}

// Keep keeps what Look has read.
func (c *Cache) Keep(s *Snapshot, tenant Tenant) {
	c.mu.Lock()
	c.keep(s, tenant)
	c.mu.Unlock()
	if c.taken != nil {
		c.taken(s)
	}
}

// OnSnapshot has f called with each new snapshot while its process exists. It must return
// soon. Set it before the cache is used.
func (c *Cache) OnSnapshot(f func(*Snapshot)) { c.taken = f }

// Find returns the executable mapping that covers addr in the newest known
// process with that pid, running or exited. A process seen for the first time
// is read; one whose snapshot does not cover addr is read again, at most once
// per Config.MinRefresh. A tenant whose processes have cost much is not found in those that have to be read.
func (c *Cache) Find(pid uint32, addr uint64) (Mapping, bool) {
	m, ok, _ := c.FindSince(pid, addr, time.Time{})
	return m, ok
}

// FindSince is Find; isFinal is false if another answer may come later: the snapshot is older than since, and
// the process could not be read now, or has mapped something after it.
func (c *Cache) FindSince(pid uint32, addr uint64, since time.Time) (m Mapping, ok, isFinal bool) {
	c.renew(pid, c.cfg.MinRefresh)
	c.mu.Lock()
	e := c.byPID[pid]
	if e != nil {
		m, ok := e.snapshot.Find(addr)
		fresh := time.Since(e.snapshot.Taken) < c.cfg.MinRefresh
		if !e.exited {
			c.running.MoveToFront(e.element)
		}
		if e.exited || (!e.stale && (ok || fresh)) {
			isFinal = e.exited || !e.snapshot.Taken.Before(since) || ok && !e.snapshot.Taken.Before(e.changed)
			c.mu.Unlock()
			return m, ok, isFinal
		}
	}
	c.mu.Unlock()

	s, err := c.findAgain(pid)
	if err == nil {
		m, ok = s.Find(addr)
		return m, ok, true
	}
	if e != nil { // exited since: the kept snapshot is the best available
		m, ok = e.snapshot.Find(addr)
	}
	return m, ok, !errors.Is(err, errSpent) && !errors.Is(err, ErrStuck)
}

const (
	// What a tenant's processes may cost in Find.
	findBurst = 500 * time.Millisecond
	findShare = 50
)

var errSpent = errors.New("the processes of its container have cost too much")

func (c *Cache) findAgain(pid uint32) (*Snapshot, error) {
	tenant := c.tenantNow(pid)
	c.mu.Lock()
	pause := c.spent.Pause(tenant, time.Now())
	c.mu.Unlock()
	if pause > 0 {
		return nil, errSpent
	}
	s, err := c.snapshot(pid, tenant)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent.Take(tenant, CostOf(s, err), time.Now())
	c.spent.ForgetPaid(time.Now())
	return s, err
}

// Kept returns the newest snapshot of a process that runs, nil if there is none of its program. Nothing is read.
func (c *Cache) Kept(pid uint32) *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byPID[pid]
	if e == nil || e.exited || e.stale {
		return nil
	}
	c.running.MoveToFront(e.element)
	return e.snapshot
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
		if e.exited {
			e.checked = time.Time{} // another process has the pid
		}
	}
}

// Changed notes that a process has mapped something just now, perhaps where something else was: until it is read again, no
// answer about it is final. It is not read for that.
func (c *Cache) Changed(pid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byPID[pid]; e != nil {
		e.changed = time.Now()
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
func (c *Cache) keep(s *Snapshot, tenant Tenant) {
	if e := c.byPID[s.Process.PID]; e != nil {
		if e.snapshot.Process == s.Process && !e.exited {
			c.count(e, -1)
			e.snapshot, e.stale, e.bytes, e.checked = s, false, s.bytes, s.Taken
			c.count(e, 1)
			c.running.MoveToFront(e.element)
			c.makeRoom(e)
			return
		}
		c.retire(e)
	}
	e := &entry{snapshot: s, tenant: tenant, bytes: s.bytes, checked: s.Taken}
	c.count(e, 1)
	e.element = c.running.PushFront(e)
	c.byPID[s.Process.PID] = e
	c.makeRoom(e)
}

// count adds an entry to what there is, or takes it off.
func (c *Cache) count(e *entry, n int) {
	mine := c.byTenant[e.tenant]
	if mine == nil {
		mine = &share{}
		c.byTenant[e.tenant] = mine
	}
	c.bytes += n * e.bytes
	mine.bytes += n * e.bytes
	if mine.processes += n; mine.processes == 0 {
		delete(c.byTenant, e.tenant)
	}
}

// makeRoom drops others than a new entry.
func (c *Cache) makeRoom(e *entry) {
	for c.running.Len()+c.exited.Len() > c.cfg.MaxProcesses || c.bytes > c.cfg.MaxBytes {
		mine := c.byTenant[e.tenant]
		var last *entry
		if mine.bytes > c.cfg.MaxBytes/4 || mine.processes > c.cfg.MaxProcesses/4 {
			last = c.last(e, func(of *entry) bool { return of.tenant == e.tenant })
		}
		if last == nil {
			last = c.last(e, func(*entry) bool { return true })
		}
		if last == nil {
			return // it is the only one
		}
		c.forget(last)
	}
}

// last is the entry that was not used for the longest time, first of those that have exited.
func (c *Cache) last(but *entry, is func(*entry) bool) *entry {
	for _, l := range []*list.List{c.exited, c.running} {
		for at := l.Back(); at != nil; at = at.Prev() {
			if e := at.Value.(*entry); e != but && is(e) {
				return e
			}
		}
	}
	return nil
}

// retire moves a process to the exited; the lock is held.
func (c *Cache) retire(e *entry) {
	if e.exited {
		return
	}
	c.running.Remove(e.element)
	e.exited = true
	e.checked = time.Now() // its rows are named in a second, by its mappings
	e.element = c.exited.PushFront(e)
	c.byExited[e.snapshot.Process] = e
	for c.exited.Len() > c.cfg.MaxExited {
		last := c.exited.Back().Value.(*entry)
		if c.byTenant[e.tenant].processes > c.cfg.MaxExited/4 {
			last = c.last(nil, func(of *entry) bool { return of.exited && of.tenant == e.tenant })
		}
		c.forget(last)
	}
}

// forget drops a process; the lock is held.
func (c *Cache) forget(e *entry) {
	c.count(e, -1)
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

func (c *Cache) path(pid uint32, name string) string {
	return filepath.Join(c.cfg.ProcFS, strconv.FormatUint(uint64(pid), 10), name)
}
