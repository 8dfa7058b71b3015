// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/gpu-gadgets/gpu-gadgets/operators/profile"
)

// maxEnded bounds the ended processes that wait for a reader, for when nobody
// scrapes. A process costs some 1 KiB.
const maxEnded = 4096

// Series is what one process has of one kind on one device. Its labels are those
// of the process without the ID.
type Series struct {
	Process profile.Process
	Kind    string
	Device  int32
}

// Sums are a series' counters. PeakBytes is the highest in-use that a read saw,
// at least that of its largest stack: what came and went between two reads, in
// several stacks, may have been more.
type Sums struct {
	profile.Values
	// Failed allocations and the bytes that they asked for.
	Failed, FailedBytes int64
}

// Sample is a series with its value.
type Sample struct {
	Series
	Sums
	Ended bool
}

// Drop is how often, and with how many bytes in no row, a gadget could not
// record something.
type Drop struct {
	Gadget, Reason string
	Count, Bytes   int64
}

// GadgetState is what a running gadget says about itself.
type GadgetState struct {
	Gadget   string
	Rows     int
	Attached int // processes with probes; −1 for a gadget without probes
}

// Snapshot is everything at one moment, sorted.
type Snapshot struct {
	Samples []Sample
	Drops   []Drop
	Gadgets []GadgetState
	// Forgotten processes ended and were dropped before they had been read.
	Forgotten int64
}

// Store holds the latest counters of all running gadgets for any number of
// readers. It is safe for concurrent use.
type Store struct {
	mu        sync.Mutex
	runs      []*Run // in the order of their start
	readers   []*Reader
	forgotten int64
}

// Run is one gadget's part of the store.
type Run struct {
	store     *Store
	gadget    string
	rows      int
	processes map[uint64]*process
	// done are processes that ended and were read; the kernel may still have
	// their rows.
	done     map[uint64]bool
	drops    map[string]Drop
	attached map[attachment]bool
	probes   bool
	order    int64 // of ends
}

type attachment struct {
	pid  uint32
	path string
}

type process struct {
	info   profile.Process
	series map[seriesKey]*Sums
	inRows bool
	ended  int64 // 0 while it runs; else the how-manieth end
	seen   map[*Reader]bool
}

type seriesKey struct {
	kind   string
	device int32
}

// NewRun adds a gadget. Close takes it out again.
func (s *Store) NewRun(gadget string) *Run {
	r := &Run{store: s, gadget: gadget, processes: map[uint64]*process{}, done: map[uint64]bool{},
		drops: map[string]Drop{}, attached: map[attachment]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, r)
	return r
}

// Close removes the gadget with all its series.
func (r *Run) Close() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.runs = slices.DeleteFunc(r.store.runs, func(o *Run) bool { return o == r })
}

// Rows takes the cumulative rows of all processes, as they are at every interval.
// Stacks are not looked at. ended says whether a process is over; it is asked for
// every known process, with or without rows.
func (r *Run) Rows(rows []profile.Row, ended func(profile.Process) bool) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	type sum struct {
		values profile.Values
		peak   int64 // of the largest row
	}
	sums := map[uint64]map[seriesKey]*sum{}
	r.rows = len(rows)
	for _, row := range rows {
		bySeries := sums[row.Process.ID]
		if bySeries == nil {
			bySeries = map[seriesKey]*sum{}
			sums[row.Process.ID] = bySeries
			if r.done[row.Process.ID] && !ended(row.Process) {
				delete(r.done, row.Process.ID) // a filter had hidden its rows
			}
			if !r.done[row.Process.ID] {
				r.process(row.Process).info = row.Process
			}
		}
		key := seriesKey{row.Kind, row.Device}
		if bySeries[key] == nil {
			bySeries[key] = &sum{}
		}
		bySeries[key].values = bySeries[key].values.Add(row.Values)
		bySeries[key].peak = max(bySeries[key].peak, row.PeakBytes)
	}
	for id := range r.done {
		if sums[id] == nil {
			delete(r.done, id)
		}
	}
	for id, p := range r.processes {
		bySeries := sums[id]
		for key, new := range bySeries {
			s := p.of(key)
			peak := max(s.PeakBytes, new.peak, new.values.InuseBytes)
			s.Values = new.values
			s.PeakBytes = peak
		}
		p.inRows = p.inRows || bySeries != nil
		// Rows that were there and are not any more: the kernel forgets
		// ended processes only.
		over := p.inRows && bySeries == nil || ended(p.info)
		switch {
		case over && p.ended == 0:
			r.end(p)
		case !over && p.ended != 0:
			p.ended = 0
			clear(p.seen)
		}
	}
	r.forget()
}

// Failed counts an allocation that the driver refused.
func (r *Run) Failed(s Series, requested int64) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.done[s.Process.ID] {
		return
	}
	sums := r.process(s.Process).of(seriesKey{s.Kind, s.Device})
	sums.Failed++
	sums.FailedBytes += requested
}

// Drop sets a reason's counters, which only grow.
func (r *Run) Drop(reason string, count, bytes int64) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.drops[reason] = Drop{r.gadget, reason, count, bytes}
}

// Probes says that the gadget attaches probes to processes.
func (r *Run) Probes() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.probes = true
}

// Attached says whether a library of a process has probes now.
func (r *Run) Attached(pid uint32, path string, attached bool) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if attached {
		r.attached[attachment{pid, path}] = true
	} else {
		delete(r.attached, attachment{pid, path})
	}
}

func (r *Run) process(info profile.Process) *process {
	p := r.processes[info.ID]
	if p == nil {
		p = &process{info: info, series: map[seriesKey]*Sums{}, seen: map[*Reader]bool{}}
		r.processes[info.ID] = p
	}
	return p
}

func (p *process) of(key seriesKey) *Sums {
	s := p.series[key]
	if s == nil {
		s = &Sums{}
		p.series[key] = s
	}
	return s
}

// end closes a process's series: what was in use was freed by its end.
func (r *Run) end(p *process) {
	r.order++
	p.ended = r.order
	for _, s := range p.series {
		s.ImplicitBytes += s.InuseBytes
		s.ImplicitObjects += s.InuseObjects
		s.InuseBytes, s.InuseObjects = 0, 0
	}
	for a := range r.attached {
		if a.pid == p.info.PID {
			delete(r.attached, a)
		}
	}
}

// forget drops the oldest ended processes when too many wait for a reader.
func (r *Run) forget() {
	var ended []*process
	for _, p := range r.processes {
		if p.ended != 0 {
			ended = append(ended, p)
		}
	}
	if len(ended) <= maxEnded {
		return
	}
	slices.SortFunc(ended, func(a, b *process) int { return cmp.Compare(a.ended, b.ended) })
	for _, p := range ended[:len(ended)-maxEnded] {
		r.drop(p)
		r.store.forgotten++
	}
}

func (r *Run) drop(p *process) {
	delete(r.processes, p.info.ID)
	r.done[p.info.ID] = true
}

// Reader is one way out of the store. Each reader sees an ended process once
// more, with its last values.
type Reader struct{ store *Store }

// NewReader adds a reader. It must be read or closed: ended processes wait for it.
func (s *Store) NewReader() *Reader {
	r := &Reader{store: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers = append(s.readers, r)
	return r
}

// Close removes the reader.
func (r *Reader) Close() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.readers = slices.DeleteFunc(r.store.readers, func(o *Reader) bool { return o == r })
}

// Read is what the reader has to report now. A process that several gadgets
// recorded is taken from the one that started first.
func (r *Reader) Read() Snapshot {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var snapshot Snapshot
	taken := map[uint64]bool{}
	for _, run := range s.runs {
		for id, p := range run.processes {
			if taken[id] || p.seen[r] {
				continue
			}
			taken[id] = true
			for key, sums := range p.series {
				snapshot.Samples = append(snapshot.Samples, Sample{
					Series{p.info, key.kind, key.device}, *sums, p.ended != 0})
			}
		}
		for _, d := range run.drops {
			snapshot.addDrop(d)
		}
		snapshot.addGadget(run.state())
		for _, p := range run.processes {
			if p.ended == 0 {
				continue
			}
			p.seen[r] = true
			if !slices.ContainsFunc(s.readers, func(o *Reader) bool { return !p.seen[o] }) {
				run.drop(p)
			}
		}
	}
	snapshot.Forgotten = s.forgotten
	snapshot.sort()
	return snapshot
}

// Current is the samples of processes that run, for readers that take no part in
// what ends.
func (s *Store) Current() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	var snapshot Snapshot
	taken := map[uint64]bool{}
	for _, run := range s.runs {
		for id, p := range run.processes {
			if taken[id] || p.ended != 0 {
				continue
			}
			taken[id] = true
			for key, sums := range p.series {
				snapshot.Samples = append(snapshot.Samples, Sample{Series{p.info, key.kind, key.device}, *sums, false})
			}
		}
	}
	snapshot.sort()
	return snapshot.Samples
}

func (r *Run) state() GadgetState {
	state := GadgetState{Gadget: r.gadget, Rows: r.rows, Attached: -1}
	if r.probes {
		pids := map[uint32]bool{}
		for a := range r.attached {
			pids[a.pid] = true
		}
		state.Attached = len(pids)
	}
	return state
}

func (s *Snapshot) addDrop(d Drop) {
	for i := range s.Drops {
		if have := &s.Drops[i]; have.Gadget == d.Gadget && have.Reason == d.Reason {
			have.Count += d.Count
			have.Bytes += d.Bytes
			return
		}
	}
	s.Drops = append(s.Drops, d)
}

func (s *Snapshot) addGadget(g GadgetState) {
	for i := range s.Gadgets {
		if have := &s.Gadgets[i]; have.Gadget == g.Gadget {
			have.Rows += g.Rows
			have.Attached = max(have.Attached, g.Attached)
			return
		}
	}
	s.Gadgets = append(s.Gadgets, g)
}

func (s *Snapshot) sort() {
	slices.SortFunc(s.Samples, func(a, b Sample) int {
		return cmp.Or(
			strings.Compare(a.Process.Namespace, b.Process.Namespace),
			strings.Compare(a.Process.Pod, b.Process.Pod),
			strings.Compare(a.Process.Container, b.Process.Container),
			cmp.Compare(a.Process.PID, b.Process.PID),
			strings.Compare(a.Process.Comm, b.Process.Comm),
			cmp.Compare(a.Process.ID, b.Process.ID),
			cmp.Compare(a.Device, b.Device),
			strings.Compare(a.Kind, b.Kind),
		)
	})
	slices.SortFunc(s.Drops, func(a, b Drop) int {
		return cmp.Or(strings.Compare(a.Gadget, b.Gadget), strings.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(s.Gadgets, func(a, b GadgetState) int { return strings.Compare(a.Gadget, b.Gadget) })
}
