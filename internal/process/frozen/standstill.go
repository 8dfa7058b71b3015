// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/schedstat"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/waits"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Standstill finds processes whose main thread has not run for a while, without dumps: a thread
// that was not scheduled has not changed its line. Other threads may run a little, as a library's
// own do that look after something now and then. It reads /proc. It must not be used
// concurrently.
type Standstill struct {
	// ProcFS is the host's /proc.
	ProcFS string
	// After is how long the main thread must not have run.
	After time.Duration

	known map[uint32]*still
	// others can end a wait of a process that does not run: whether they run is known at a
	// later look.
	others map[uint32]bool
	reader *waits.Reader
}

const (
	// maxOthers bounds the processes that are followed only because others wait for them. The last quarter is for
	// tenants with less than a quarter.
	maxOthers = 256
	// maxRead bounds the processes of a tenant whose waits are read. What those beyond wait for is unknown.
	maxRead = 512
)

// Still is a process whose main thread does not run.
type Still struct {
	PID  uint32
	Comm string
	// For is how long the main thread has not run.
	For time.Duration
	// WaitsFor is the kind of what the main thread waits for: a waits.Kind, several, or unknown.
	WaitsFor string
	// Circle is the processes that wait for each other, this one among them; nil: something else
	// can end its wait.
	Circle []uint32
}

// still is a process at an earlier look.
type still struct {
	start time.Duration // distinguishes it from the next one with its id
	turns uint64        // of the main thread
	cpu   time.Duration
	since time.Time
	comm  string
	// What it waits for, as it was read last: while its tenant has cost too much, that is not read again.
	isRead   bool
	waitsFor string
	edges    []waits.Edge
}

// Look returns those of the processes that have not run for After, the longest first.
func (s *Standstill) Look(now time.Time, pids []uint32) (all []Still) {
	isAsked := map[uint32]bool{}
	for _, pid := range pids {
		isAsked[pid] = true
	}
	stuck := s.stuck(now, pids)
	s.read(stuck)
	var edges []waits.Edge
	for pid := range stuck {
		edges = append(edges, s.known[pid].edges...)
	}
	circle := map[uint32][]uint32{}
	for _, pids := range waits.Cycles(edges, stuck) {
		for _, pid := range pids {
			circle[pid] = pids
		}
	}
	for pid := range stuck {
		if k := s.known[pid]; isAsked[pid] {
			all = append(all, Still{PID: pid, Comm: k.comm, For: now.Sub(k.since), WaitsFor: k.waitsFor, Circle: circle[pid]})
		}
	}
	s.follow(edges, isAsked)
	slices.SortFunc(all, func(a, b Still) int { return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.PID, b.PID)) })
	return all
}

// stuck are those of the processes, and of the others that are followed, that have not run for After.
func (s *Standstill) stuck(now time.Time, pids []uint32) map[uint32]bool {
	known, stuck := map[uint32]*still{}, map[uint32]bool{}
	for pid := range s.others {
		pids = append(pids[:len(pids):len(pids)], pid)
	}
	for _, pid := range pids {
		state, err := holder.Read(s.ProcFS, pid)
		if err != nil || known[pid] != nil {
			continue // it has ended
		}
		schedule, err := schedstat.Read(s.ProcFS, pid, pid)
		if err != nil {
			continue
		}
		k := s.known[pid]
		if k == nil || k.start != state.Start || k.turns != schedule.Turns || state.CPU-k.cpu > max(now.Sub(k.since), time.Second)/runningShare {
			k = &still{start: state.Start, turns: schedule.Turns, cpu: state.CPU, since: now, waitsFor: kindOf(waits.Wait{})}
		}
		k.comm = state.Comm
		known[pid] = k
		if now.Sub(k.since) >= s.After {
			stuck[pid] = true
		}
	}
	s.known = known
	return stuck
}

// read reads what processes wait for.
func (s *Standstill) read(stuck map[uint32]bool) {
	if len(stuck) == 0 {
		return
	}
	if s.reader == nil {
		s.reader = waits.NewReader(s.ProcFS)
	} else {
		s.reader = s.reader.Next()
	}
	count := map[procmaps.Tenant]int{}
	// All threads first: so the mappings of each process are read once.
	threads := map[uint32]map[uint32]waits.Wait{}
	pids := slices.Sorted(maps.Keys(stuck))
	for _, pid := range pids {
		tenant := s.reader.Tenant(pid)
		if count[tenant]++; count[tenant] <= maxRead {
			threads[pid] = s.reader.ReadDeciding(pid)
		}
	}
	for _, pid := range pids {
		k, read := s.known[pid], threads[pid]
		edges := s.reader.Edges(slices.Collect(maps.Values(read)))
		if isRead := read != nil && !s.reader.IsCut(pid); isRead || !k.isRead {
			k.isRead, k.edges = isRead, edges
		}
		if main := read[pid]; len(main.For) > 0 {
			k.waitsFor = kindOf(main)
		}
	}
}

// follow keeps the processes that others wait for.
func (s *Standstill) follow(edges []waits.Edge, isAsked map[uint32]bool) {
	s.others = map[uint32]bool{}
	count := map[procmaps.Tenant]int{} // by who waits
	for _, e := range edges {
		tenant := s.reader.Tenant(e.From)
		for _, pid := range e.To {
			if !isAsked[pid] && !s.others[pid] && throttle.HasRoom(len(s.others), maxOthers, func() int { return count[tenant] }) {
				s.others[pid] = true
				count[tenant]++
			}
		}
	}
}

// kindOf is the kind of what a thread waits for.
func kindOf(w waits.Wait) string {
	kind := "unknown"
	for n, resource := range w.For {
		if n > 0 && kind != string(resource.Kind) {
			return "several"
		}
		kind = string(resource.Kind)
	}
	return kind
}
