// SPDX-License-Identifier: Apache-2.0

// Package unwinder gives the walk of native stacks (bpf/stack/unwind.h) the rules of the code
// that it meets. A walk that finds no rules for an address reports the page of the file; the
// page is read from the file behind the mapping and put into a map, for all processes. What
// else is likely on that stack is read at once: the words above the stack pointer that are
// addresses of code.
//
// The memory of the map is bounded. Pages that were not used for longest are removed.
package unwinder

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// PageMemory is a page's share of the kernel's memory: its value of 404 bytes, the key and
	// the entry of the hash, in the allocator's size.
	PageMemory = 512
	// MinMemory is enough for the stacks of one program.
	MinMemory = 1 << 20
	// RingBytes is the size of the ring of misses, AskedPages how many may be open.
	RingBytes  = 128 << 10
	AskedPages = 4096
)

// Names of the maps and of the constants of bpf/stack/rules.h.
const (
	PagesMap  = "unwind_pages"
	AskedMap  = "unwind_asked"
	MissesMap = "unwind_misses"
	// WalksMap is that of a gadget whose walks are not those of threads; others have none.
	WalksMap = "unwind_walks"

	OnConstant        = "native_rules"
	PageShiftConstant = "native_page_shift"
)

// Which stacks are walked by rules: values of OnConstant.
const (
	Off uint8 = iota
	WithoutPython
	All
)

// Enlarge makes room for the rules, before the maps are made.
func Enlarge(specs map[string]*ebpf.MapSpec, memory int64) {
	specs[PagesMap].MaxEntries = uint32(memory / PageMemory)
	specs[AskedMap].MaxEntries = AskedPages
	specs[MissesMap].MaxEntries = RingBytes
	if walks := specs[WalksMap]; walks != nil {
		walks.MaxEntries = uint32(ebpf.MustPossibleCPU())
	}
}

// Config of an Unwinder.
type Config struct {
	ProcFS string // default /proc
	// Processes has what is mapped; its ProcFS must be the same. May be nil.
	Processes *procmaps.Cache
	// Pages, Asked and Misses are the maps of the gadget.
	Pages, Asked, Misses *ebpf.Map
}

// Stats counts what an Unwinder did.
type Stats struct {
	Pages   int // in the map now
	Limit   int // of Pages
	Files   int // whose rules are read
	Misses  uint64
	Evicted uint64
	Failed  uint64 // pages whose file could not be opened or read
}

// Unwinder loads rules until Stop.
type Unwinder struct {
	cfg    Config
	reader *ringbuf.Reader
	cancel context.CancelFunc
	done   sync.WaitGroup

	files *files
	vdso  *file // nil: not read yet
	pages int
	limit int
	// looked is when the stacks of a process were last read.
	looked map[uint32]time.Time
	// owners are the tenants for whose walks the pages were loaded.
	owners map[Key]procmaps.Tenant
	// again are the keys of pages that could not be read, to be requested again then; waiting is how many of each tenant.
	again   []retry
	waiting map[procmaps.Tenant]int
	// What all have cost, and each tenant.
	spent   throttle.Allowance
	tenants throttle.Allowances[procmaps.Tenant]

	loaded, failed, evicted, misses, open atomic.Uint64
}

type retry struct {
	key    Key
	at     time.Time
	tenant procmaps.Tenant
}

// New checks the maps. Nothing is read yet.
func New(cfg Config) (*Unwinder, error) {
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	if cfg.Processes == nil {
		cfg.Processes = procmaps.NewCache(procmaps.Config{ProcFS: cfg.ProcFS})
	}
	for _, m := range []*ebpf.Map{cfg.Pages, cfg.Asked} {
		if m.KeySize() != uint32(unsafe.Sizeof(Key{})) {
			return nil, fmt.Errorf("map %v has keys of %d bytes, not %d", m, m.KeySize(), unsafe.Sizeof(Key{}))
		}
	}
	if cfg.Pages.ValueSize() != uint32(unsafe.Sizeof(Page{})) {
		return nil, fmt.Errorf("map %v has values of %d bytes, not %d", cfg.Pages, cfg.Pages.ValueSize(), unsafe.Sizeof(Page{}))
	}
	return &Unwinder{
		cfg: cfg, files: newFiles(), limit: int(cfg.Pages.MaxEntries()), looked: map[uint32]time.Time{},
		owners: map[Key]procmaps.Tenant{}, waiting: map[procmaps.Tenant]int{},
		spent: newAllowance(), tenants: newTenantsAllowances(),
	}, nil
}

// Start loads in the background until Stop.
func (u *Unwinder) Start(ctx context.Context) error {
	reader, err := ringbuf.NewReader(u.cfg.Misses)
	if err != nil {
		return fmt.Errorf("read misses: %w", err)
	}
	u.reader = reader
	ctx, u.cancel = context.WithCancel(ctx)
	u.done.Go(func() { u.run(ctx) })
	return nil
}

// Stop ends the loading and waits. It may be called more than once, and without Start.
func (u *Unwinder) Stop() {
	if u.cancel == nil {
		return
	}
	u.cancel()
	u.reader.Close()
	u.done.Wait()
	u.files.close()
}

// Stats returns the present counts.
func (u *Unwinder) Stats() Stats {
	return Stats{Pages: int(u.loaded.Load()), Limit: u.limit, Files: int(u.open.Load()), Misses: u.misses.Load(),
		Evicted: u.evicted.Load(), Failed: u.failed.Load()}
}

const (
	// gather is waited after the first miss, for those of the same stacks.
	gather = 500 * time.Microsecond
	// retryAfter is how soon a page that could not be read is requested again.
	retryAfter = time.Second
	// maxBatch bounds what is read before it is acted upon.
	maxBatch = 256
	// maxWaiting bounds the pages of a tenant that are not to be requested for now: walks note AskedPages of all.
	maxWaiting = AskedPages / 16
)

func (u *Unwinder) run(ctx context.Context) {
	runtime.LockOSThread() // its processor time is counted
	defer runtime.UnlockOSThread()
	var record ringbuf.Record
	for ctx.Err() == nil {
		u.reader.SetDeadline(u.nextRetry())
		var batch []Miss
		err := u.reader.ReadInto(&record)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return // closed
		default:
			time.Sleep(gather)
			u.reader.SetDeadline(time.Unix(1, 0)) // long ago: only what is there
			for err == nil && len(batch) < maxBatch {
				batch = appendMiss(batch, record.RawSample)
				err = u.reader.ReadInto(&record)
			}
			if err == nil {
				batch = appendMiss(batch, record.RawSample)
			}
		}
		before := throttle.ThreadTime()
		u.handle(batch)
		u.askAgain(time.Now())
		now := time.Now()
		u.spent.Take(throttle.ThreadTime()-before, now)
		if !wait(ctx, u.spent.Pause(now)) {
			return
		}
	}
}

// appendMiss decodes struct unwind_miss.
func appendMiss(batch []Miss, b []byte) []Miss {
	if uintptr(len(b)) != unsafe.Sizeof(Miss{}) {
		return batch // of another version
	}
	ne := binary.NativeEndian
	return append(batch, Miss{
		Key: Key{Inode: ne.Uint64(b), Bytes: ne.Uint64(b[8:]), Device: ne.Uint32(b[16:]),
			Page: ne.Uint32(b[20:]), Part: ne.Uint32(b[24:]), Changed: ne.Uint32(b[28:])},
		Start: ne.Uint64(b[32:]), Address: ne.Uint64(b[40:]), SP: ne.Uint64(b[48:]), TGID: ne.Uint32(b[56:]),
	})
}

// nextRetry is when askAgain has something to do; zero: never.
func (u *Unwinder) nextRetry() time.Time {
	if len(u.again) == 0 {
		return time.Time{}
	}
	return u.again[0].at
}

// askAgain lets walks report pages that could not be read some time ago.
func (u *Unwinder) askAgain(now time.Time) {
	for len(u.again) > 0 && !u.again[0].at.After(now) {
		first := u.again[0]
		_ = u.cfg.Asked.Delete(first.key)
		u.again = u.again[1:]
		if u.waiting[first.tenant]--; u.waiting[first.tenant] == 0 {
			delete(u.waiting, first.tenant)
		}
	}
}

// later has a page requested again some time later, if few of the tenant wait for that.
func (u *Unwinder) later(key Key, tenant procmaps.Tenant, now time.Time) {
	if u.waiting[tenant] >= maxWaiting {
		_ = u.cfg.Asked.Delete(key)
		return
	}
	u.waiting[tenant]++
	u.again = append(u.again, retry{key, now.Add(retryAfter), tenant})
}

// handle loads the pages of misses, and those that are likely to follow.
func (u *Unwinder) handle(batch []Miss) {
	u.misses.Add(uint64(len(batch)))
	now := time.Now()
	p := newProcesses(u, now)
	u.tenants.ForgetPaid(now)
	for _, miss := range batch {
		tenant := p.tenant(miss.TGID)
		if u.tenants.Pause(tenant, now) > 0 {
			u.later(miss.Key, tenant, now)
			continue
		}
		began := throttle.ThreadTime()
		err := u.load(p, miss)
		u.tenants.Take(tenant, throttle.ThreadTime()-began, now)
		if err != nil {
			u.failed.Add(1)
			u.later(miss.Key, tenant, now)
			continue
		}
		_ = u.cfg.Asked.Delete(miss.Key)
	}
	for _, miss := range batch {
		tenant := p.tenant(miss.TGID)
		if now.Sub(u.looked[miss.TGID]) < lookEach || u.tenants.Pause(tenant, now) > 0 {
			continue
		}
		if len(u.looked) > maxLooked {
			clear(u.looked)
		}
		u.looked[miss.TGID] = now
		began := throttle.ThreadTime()
		u.look(p, miss)
		u.tenants.Take(tenant, throttle.ThreadTime()-began, now)
	}
	u.loaded.Store(uint64(u.pages))
	u.open.Store(uint64(len(u.files.open)))
}
