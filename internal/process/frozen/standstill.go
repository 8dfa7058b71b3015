// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/schedstat"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/waits"
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
}

// maxOthers bounds the processes that are followed only because others wait for them.
const maxOthers = 256

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
}

// Look returns those of the processes that have not run for After, the longest first.
func (s *Standstill) Look(now time.Time, pids []uint32) (all []Still) {
	known, stuck, comms := map[uint32]*still{}, map[uint32]bool{}, map[uint32]string{}
	isAsked := map[uint32]bool{}
	for _, pid := range pids {
		isAsked[pid] = true
	}
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
			k = &still{state.Start, schedule.Turns, state.CPU, now}
		}
		known[pid], comms[pid] = k, state.Comm
		stuck[pid] = now.Sub(k.since) >= s.After
	}
	s.known = known
	reader := waits.NewReader(s.ProcFS)
	var edges []waits.Edge
	for pid, is := range stuck {
		if !is {
			continue
		}
		read := reader.ReadAll(pid)
		threads := make([]waits.Wait, 0, len(read))
		for _, w := range read {
			threads = append(threads, w)
		}
		edges = append(edges, reader.Edges(threads)...)
		if isAsked[pid] {
			all = append(all, Still{PID: pid, Comm: comms[pid], For: now.Sub(known[pid].since), WaitsFor: kindOf(read[pid])})
		}
	}
	circles := waits.Cycles(edges, stuck)
	for n := range all {
		for _, circle := range circles {
			if slices.Contains(circle, all[n].PID) {
				all[n].Circle = circle
			}
		}
	}
	s.follow(edges, all)
	slices.SortFunc(all, func(a, b Still) int { return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.PID, b.PID)) })
	return all
}

// follow keeps the processes that others wait for.
func (s *Standstill) follow(edges []waits.Edge, reported []Still) {
	s.others = map[uint32]bool{}
	for _, e := range edges {
		for _, pid := range e.To {
			isReported := slices.ContainsFunc(reported, func(r Still) bool { return r.PID == pid })
			if !isReported && len(s.others) < maxOthers {
				s.others[pid] = true
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
