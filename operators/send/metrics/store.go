// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// maxEnded bounds the ended processes that wait for a reader, in case there are no
// scrapes. A process takes about 1 KiB.
const maxEnded = 4096

// Series identifies the memory of one process, of one kind and on one device; or, with a
// Call, its calls of the driver. Its labels are those of the process without the ID.
type Series struct {
	Process profile.Process
	Kind    string
	Device  int32
	Call    Call
	Vendor  string // of the GPUs: that of the gadget
}

// Call identifies a group of calls of the driver. The zero value is not a call: the
// series is of memory.
type Call struct {
	// Operation is launch, graph, copy, wait and so on, Direction that of a copy.
	Operation, Direction string
	// Error is the driver's name of the error, "" for successful calls.
	Error string
	// Waits is set for a copy whose time counts as waited for the GPU.
	Waits bool
}

// rank orders copies that wait after the others.
func (c Call) rank() int {
	if c.Waits {
		return 1
	}
	return 0
}

// Sums are a series' counters. PeakBytes is the highest in-use value of all reads, at
// least that of the largest stack: between two reads the sum over several stacks may have
// been higher.
type Sums struct {
	profile.Values
	// Failed allocations and the bytes that they requested.
	Failed, FailedBytes int64
	// Calls of the driver, the bytes that they moved, and their time on the CPU.
	Calls, CallBytes, CallNanoseconds int64
}

// Sample is a series with its value.
type Sample struct {
	Series
	Sums
	Ended bool
}

// Drop counts what a gadget could not record, and the bytes that are in no row.
type Drop struct {
	Gadget, Reason string
	Count, Bytes   int64
	Node           string // of a store of several nodes
}

// GadgetState is the state of a running gadget.
type GadgetState struct {
	Gadget   string
	Rows     int
	Attached int // processes with probes; −1 for a gadget without probes
	Node     string
}

// Snapshot is everything at one moment, sorted.
type Snapshot struct {
	// Samples are of memory, Calls of calls.
	Samples, Calls []Sample
	Drops          []Drop
	Gadgets        []GadgetState
	Pools          []Pool
	Buffers        []Buffers
	Ages           []Ages
	// Forgotten counts ended processes that were dropped before they had been read.
	Forgotten int64
}

// Store holds the latest counters of all running gadgets for any number of
// readers. It is safe for concurrent use.
type Store struct {
	mu        sync.Mutex
	runs      []*Run // in the order of their start
	readers   []*Reader
	forgotten int64
	drops     []Drop // of runs on this node that have ended
}

// Run is one gadget's part of the store.
type Run struct {
	store     *Store
	gadget    string
	vendor    string
	node      string
	isRemote  bool // see NewRunOn
	rows      int
	processes map[uint64]*process
	// done are processes that ended and were read; the kernel may still have
	// their rows.
	done     map[uint64]bool
	drops    map[string]Drop
	attached map[attachment]bool
	probes   bool
	order    int64 // of ends and of failures
	refused  int   // processes that Failed has added since forget
	pools    []Pool
	buffers  []Buffers
	ages     []Ages
}

type attachment struct {
	pid  uint32
	path string
}

type process struct {
	info   profile.Process
	series map[seriesKey]*Sums
	inRows bool
	ended  int64 // 0 while it runs; else the ordinal of its end
	silence
	seen map[*Reader]bool
	// firstSeen is when a reader read it first after its end.
	firstSeen map[*Reader]time.Time
}

type seriesKey struct {
	kind   string
	device int32
	call   Call
	labels string // rows of one process differ in them if they are of spans
}

// vendorOf is whose GPUs a gadget watches, as the driver's own series name it (hw.vendor).
func vendorOf(gadget string) string {
	switch prefix, _, _ := strings.Cut(gadget, "_"); prefix {
	case "cuda":
		return "NVIDIA"
	case "hip":
		return "AMD"
	}
	return ""
}

// NewRun adds a gadget. Close removes it.
func (s *Store) NewRun(gadget string) *Run { return s.add(&Run{gadget: gadget}) }

// NewRunOn adds a gadget of another node; the processes in its rows must name that
// node, and their ids must differ from those of other nodes. Whether they live is known there
// alone: they end by having no rows any more.
func (s *Store) NewRunOn(node, gadget string) *Run {
	return s.add(&Run{gadget: gadget, node: node, isRemote: true})
}

func (s *Store) add(r *Run) *Run {
	r.store, r.vendor = s, vendorOf(r.gadget)
	r.processes, r.done = map[uint64]*process{}, map[uint64]bool{}
	r.drops, r.attached = map[string]Drop{}, map[attachment]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, r)
	return r
}

// Close removes the gadget with all its series. What it dropped stays counted; of one on another node
// that is not known: it may continue, and be added again.
func (r *Run) Close() {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.runs, r)
	if i < 0 {
		return
	}
	s.runs = slices.Delete(s.runs, i, i+1)
	if !r.isRemote {
		for _, d := range r.drops {
			s.drops = addDrop(s.drops, d)
		}
	}
}

// Rows sets the cumulative rows of all processes, at every interval. Stacks are ignored.
// ended reports whether a process has ended; it is called for every known process, with
// or without rows.
func (r *Run) Rows(rows []profile.Row, ended func(profile.Process) bool) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	all := reading{}
	for _, row := range rows {
		s := all.of(row.Process, seriesKey{kind: row.Kind, device: row.Device, labels: row.Process.Labels})
		peak := max(s.PeakBytes, row.PeakBytes) // of the largest row
		s.Values = s.Values.Add(row.Values)
		s.PeakBytes = peak
	}
	r.rows = len(rows)
	r.take(all, ended)
}

// Calls is Rows of a gadget whose rows are calls of the driver.
func (r *Run) Calls(rows []Sample, ended func(profile.Process) bool) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	all := reading{}
	for _, row := range rows {
		s := all.of(row.Process, seriesKey{device: row.Device, call: row.Call, labels: row.Process.Labels})
		*s = s.add(row.Sums)
	}
	r.rows = len(rows)
	r.take(all, ended)
}

// reading is the state at one interval, by process.
type reading map[uint64]*processReading

type processReading struct {
	info   profile.Process
	series map[seriesKey]*Sums
}

func (all reading) of(p profile.Process, key seriesKey) *Sums {
	read := all[p.ID]
	if read == nil {
		read = &processReading{p, map[seriesKey]*Sums{}}
		all[p.ID] = read
	}
	s := read.series[key]
	if s == nil {
		s = &Sums{}
		read.series[key] = s
	}
	return s
}

// take replaces the sums of all processes; mu is held.
func (r *Run) take(all reading, ended func(profile.Process) bool) {
	for id, read := range all {
		if r.done[id] && !ended(read.info) {
			delete(r.done, id) // a filter had hidden its rows
		}
		if !r.done[id] {
			r.process(read.info).info = read.info
		}
	}
	for id := range r.done {
		if all[id] == nil {
			delete(r.done, id)
		}
	}
	for id, p := range r.processes {
		read := all[id]
		if read != nil {
			p.inRows = true
			for key, new := range read.series {
				p.of(key).replace(*new)
			}
			p.relabel(read)
		}
		// Rows have disappeared: the gadget removes those of ended processes
		// only.
		over := p.inRows && read == nil || r.isSilent(p) || ended(p.info)
		switch {
		case over && p.ended == 0:
			r.end(p)
		case !over && p.ended != 0:
			p.ended = 0
			clear(p.seen)
			clear(p.firstSeen)
		}
	}
	r.forget()
}

// relabel removes series with labels that no row has any more: the process has got others, such
// as the name of its actor. What failed under them stays counted there.
func (p *process) relabel(read *processReading) {
	current := map[string]bool{}
	for key := range read.series {
		current[key.labels] = true
	}
	for key, s := range p.series {
		switch {
		case current[key.labels]:
		case s.Failed == 0:
			delete(p.series, key)
		default:
			*s = Sums{Failed: s.Failed, FailedBytes: s.FailedBytes}
		}
	}
}

// replace stores a later reading, but keeps the maximum of values that only grow.
func (s *Sums) replace(read Sums) {
	peak := max(s.PeakBytes, read.PeakBytes, read.InuseBytes)
	s.Values = read.Values
	s.PeakBytes = peak
	// With sampling these are estimates.
	s.Calls = max(s.Calls, read.Calls)
	s.CallBytes = max(s.CallBytes, read.CallBytes)
	s.CallNanoseconds = max(s.CallNanoseconds, read.CallNanoseconds)
}

// Failed counts an allocation that the driver refused.
func (r *Run) Failed(s Series, requested int64) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.done[s.Process.ID] {
		return
	}
	isNew := r.processes[s.Process.ID] == nil
	p := r.process(s.Process)
	sums := p.of(seriesKey{kind: s.Kind, device: s.Device, labels: s.Process.Labels})
	sums.Failed++
	sums.FailedBytes = saturated(sums.FailedBytes, requested)
	r.heard(p, isNew)
}

// Drop sets a reason's counters, which only grow.
func (r *Run) Drop(reason string, count, bytes int64) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.drops[reason] = Drop{r.gadget, reason, count, bytes, r.node}
}

// Probes records that the gadget attaches probes to processes.
func (r *Run) Probes() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.probes = true
}

// Attached records whether a library of a process has probes now.
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
		p = &process{info: info, series: map[seriesKey]*Sums{}, seen: map[*Reader]bool{}, firstSeen: map[*Reader]time.Time{}}
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

// end closes a process's series: memory in use was freed by its end.
func (r *Run) end(p *process) {
	r.order++
	p.ended = r.order
	for _, s := range p.series {
		s.ImplicitBytes += s.InuseBytes
		s.ImplicitObjects += s.InuseObjects
		s.InuseBytes, s.InuseObjects, s.RoundingBytes, s.FragmentedBytes = 0, 0, 0, 0
	}
	for a := range r.attached {
		if a.pid == p.info.PID {
			delete(r.attached, a)
		}
	}
}
