// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/traps"
)

// Maps of a gadget with a budget: bpf/call/budget.h, and for calls that can be followed in
// windows bpf/launch/windows.h.
type Maps struct {
	Traps, ByAPI, ByThread *ebpf.Map
	Gates, Since, Inflight *ebpf.Map // nil: no windows
	Samples                *ebpf.Map // sample_states of bpf/launch/sample.h; may be nil
}

// The layouts of bpf/call/budget.h; a test compares them with BTF.
type (
	trapsValue struct{ EntryNS, ReturnNS, Doubt1024, CountOnly uint64 }
	costValue  struct{ Hits, NS uint64 }
	sumValue   struct{ Process, CostNS, CPUNS uint64 }
)

const (
	// returns is the slot that has the returns of all functions, reports that of what
	// PyTorch's allocator reports.
	returns = 0
	reports = 255
	// weighings is no slot: what weighings have cost (witness.go).
	weighings = 256
	// least is the share of a processor that probes must take for a thread to count: below,
	// whatever share of its CPU time that is, its calls are late by a thousandth.
	least = 0.001
)

// SetTraps stores the time of a trap for the programs.
func (m Maps) SetTraps(c traps.Cost) error { return m.setTraps(c, 0, false) }

func (m Maps) setTraps(c traps.Cost, doubt float64, countOnly bool) error {
	v := trapsValue{EntryNS: uint64(c.Entry), ReturnNS: uint64(c.Return), Doubt1024: uint64(math.Ceil(1024 * doubt))}
	if countOnly {
		v.CountOnly = 1
	}
	return m.Traps.Put(uint32(0), v)
}

// endCounting undoes countOnly. The doubt stays: it is that of sums so far, too.
func (m Maps) endCounting() error {
	var v trapsValue
	if err := m.Traps.Lookup(uint32(0), &v); err != nil {
		return fmt.Errorf("follow PyTorch's allocator: %w", err)
	}
	v.CountOnly = 0
	return m.Traps.Put(uint32(0), v)
}

// cost is how often functions were entered, and what entries and returns were charged
// with, so far; returns are those of all functions.
func (m Maps) cost(apis []uint32) (c costValue) {
	for _, api := range apis {
		one, _ := m.costOf(api) // a slot of an array is there
		c.Hits, c.NS = c.Hits+one.Hits, c.NS+one.NS
	}
	return c
}

// costOf is the same for one function, or of a slot that is no function.
func (m Maps) costOf(api uint32) (c costValue, err error) {
	var values []costValue
	if err = m.ByAPI.Lookup(api, &values); err != nil {
		return c, fmt.Errorf("read what probes cost: %w", err)
	}
	for _, v := range values {
		c.Hits, c.NS = c.Hits+v.Hits, c.NS+v.NS
	}
	return c, nil
}

// Thread that the probes take most of.
type Thread struct {
	PID, TID uint32
	Share    float64 // of its CPU time
}

// seen is the cost of probes between two readings.
type seen struct {
	seconds float64
	worst   Thread
	hits    map[uint32]float64 // entries by function
	ns      map[uint32]float64 // entries and returns by function
	total   float64            // ns of all
	threads map[uint64]float64 // ns of those that pay, by (tgid, tid)
}

// meter takes the differences of counters.
type meter struct {
	maps    Maps
	at      time.Time
	threads map[uint64]sumValue
	costs   [256]costValue
}

// look measures since it was called last.
func (m *meter) look(now time.Time) (seen, error) {
	s := seen{seconds: now.Sub(m.at).Seconds(), hits: map[uint32]float64{}, ns: map[uint32]float64{}, threads: map[uint64]float64{}}
	first := m.at.IsZero()
	m.at = now
	threads := make(map[uint64]sumValue, len(m.threads))
	err := mapiter.Entries(m.maps.ByThread, func(key, value []byte) {
		id := binary.NativeEndian.Uint64(key)
		sum := sumValue{binary.NativeEndian.Uint64(value), binary.NativeEndian.Uint64(value[8:]), binary.NativeEndian.Uint64(value[16:])}
		threads[id] = sum
		last, known := m.threads[id]
		if !known || last.Process != sum.Process || sum.CPUNS < last.CPUNS || sum.CostNS < last.CostNS {
			return // from the next look on
		}
		cost, cpu := float64(sum.CostNS-last.CostNS), float64(sum.CPUNS-last.CPUNS)
		if cost < least*s.seconds*1e9 {
			return
		}
		s.threads[id] = cost
		// The CPU time is as of the last tick: up to 10 ms short.
		if share := cost / max(cpu, cost); share > s.worst.Share {
			s.worst = Thread{uint32(id >> 32), uint32(id), share}
		}
	})
	if err != nil {
		return s, fmt.Errorf("read what probes cost threads: %w", err)
	}
	m.threads = threads
	var hits float64
	for api := range uint32(len(m.costs)) {
		sum, err := m.maps.costOf(api)
		if err != nil {
			return s, err
		}
		last := m.costs[api]
		m.costs[api] = sum
		if first || sum.Hits <= last.Hits || sum.NS < last.NS {
			continue
		}
		s.hits[api], s.ns[api] = float64(sum.Hits-last.Hits), float64(sum.NS-last.NS)
		s.total += s.ns[api]
		if api != returns && api != reports {
			hits += s.hits[api]
		}
	}
	// Returns do not say whose they are where calls are nested: by the entries.
	for api, n := range s.hits {
		if api != returns && api != reports && hits > 0 {
			s.ns[api] += s.ns[returns] * n / hits
		}
	}
	delete(s.ns, returns)
	delete(s.hits, returns)
	return s, nil
}
