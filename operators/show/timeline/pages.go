// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"strconv"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/numa"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// Counting the pages of a tenant's processes may take pagesBurst of a processor, and one part in
	// pagesShare of the time after that.
	pagesBurst = 2 * time.Second
	pagesShare = 50
)

// pages counts on which NUMA nodes the memory of processes is. The kernel waits for a lock of the process, with which
// that may hang, and visits all of its pages, of which it may have any number. So it is waited for as
// procmaps.Guard does it, and what takes longer is taken when it is there.
type pages struct {
	guard procmaps.Guard

	mu      sync.Mutex
	counted map[uint64]map[string]uint64 // bytes by node, by process; nil: taken, or not counted yet
	spent   throttle.Allowances[procmaps.Tenant]
}

func newPages() *pages {
	return &pages{
		counted: map[uint64]map[string]uint64{},
		spent:   throttle.Allowances[procmaps.Tenant]{Burst: pagesBurst, Share: pagesShare},
	}
}

// count begins to count those of a process.
func (p *pages) count(procfs string, of process) {
	if !p.begin(of, time.Now()) {
		return
	}
	_ = p.guard.Run(of.tenant, strconv.FormatUint(of.Process, 10), func() { // of one that hangs there are none
		var nodes map[string]uint64
		var err error
		took := throttle.Timed(func() { nodes, err = numa.Pages(procfs, of.PID) })
		if err != nil {
			nodes = nil // it has ended, or the kernel is without NUMA
		}
		p.end(of, nodes, took, time.Now())
	})
}

func (p *pages) begin(of process, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spent.Pause(of.tenant, now) > 0 {
		return false
	}
	p.counted[of.Process] = nil
	return true
}

func (p *pages) end(of process, nodes map[string]uint64, took time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent.Take(of.tenant, took, now)
	p.spent.ForgetPaid(now)
	if _, isWanted := p.counted[of.Process]; isWanted {
		p.counted[of.Process] = nodes
	}
}

// take returns what was counted for a process since it was last called; nil: nothing.
func (p *pages) take(process uint64) map[string]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	nodes, isWanted := p.counted[process]
	if isWanted {
		p.counted[process] = nil
	}
	return nodes
}

// forget is for a process that has ended.
func (p *pages) forget(process uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.counted, process)
}
