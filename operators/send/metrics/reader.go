// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Reader is one consumer of the store. Each reader sees an ended process once more, with
// its last values.
type Reader struct {
	store *Store
	// keep is how long it sees them after that, for consumers that share a reader.
	keep time.Duration
}

// hasSeen reports whether the reader has seen an ended process for long enough; the process was
// read now.
func (r *Reader) hasSeen(p *process, now time.Time) bool {
	if p.firstSeen[r].IsZero() {
		p.firstSeen[r] = now
	}
	return now.Sub(p.firstSeen[r]) >= r.keep
}

// NewReader adds a reader. It must be read or closed: ended processes wait for it.
func (s *Store) NewReader() *Reader { return s.newReader(0) }

// newReader adds one that sees ended processes for some time.
func (s *Store) newReader(keep time.Duration) *Reader {
	r := &Reader{store: s, keep: keep}
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

// Read returns the data to report now. If several gadgets of a vendor recorded the same about
// a process, the one that started first counts.
func (r *Reader) Read() Snapshot {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := Snapshot{Drops: slices.Clone(s.drops)}
	from, vendors, now := sources{}, s.vendors(), time.Now()
	for _, run := range s.runs {
		for _, p := range run.processes {
			if !p.seen[r] && !run.isOfAnother(p.info.ID, vendors) {
				snapshot.addSamples(p, run, from)
			}
		}
		for _, d := range run.drops {
			snapshot.Drops = addDrop(snapshot.Drops, d)
		}
		snapshot.addGadget(run.state())
		for _, pool := range run.pools {
			if !run.isOfAnother(pool.Process.ID, vendors) && from.has(part{pool.Process.ID, poolPart, run.vendor}, run) {
				snapshot.Pools = append(snapshot.Pools, pool)
			}
		}
		snapshot.Buffers = append(snapshot.Buffers, run.buffers...)
		snapshot.Ages = append(snapshot.Ages, run.ages...)
		for _, p := range run.processes {
			if p.ended == 0 {
				continue
			}
			p.seen[r] = r.hasSeen(p, now)
			if !slices.ContainsFunc(s.readers, func(o *Reader) bool { return !p.seen[o] }) {
				run.drop(p)
			}
		}
	}
	snapshot.Forgotten = s.forgotten
	snapshot.sort()
	return snapshot
}

// vendors are those of whose GPUs a gadget recorded memory or calls, by process.
func (s *Store) vendors() map[uint64]map[string]bool {
	all := map[uint64]map[string]bool{}
	for _, run := range s.runs {
		for id, p := range run.processes {
			for key := range p.series {
				if profile.LayerOf(key.kind) != profile.Driver {
					continue
				}
				if all[id] == nil {
					all[id] = map[string]bool{}
				}
				all[id][run.vendor] = true
				break
			}
		}
	}
	return all
}

// isOfAnother reports whether a process has GPUs of other vendors only. Its tensors are in the run
// all the same: PyTorch reports blocks in the same function whatever the GPU.
func (r *Run) isOfAnother(id uint64, vendors map[uint64]map[string]bool) bool {
	return len(vendors[id]) > 0 && !vendors[id][r.vendor]
}

// part is the data of a process that one kind of gadget records.
type part struct {
	process uint64
	kind    partKind
	vendor  string
}

type partKind int

const (
	memoryPart partKind = iota
	callPart
	poolPart
)

// sources are the runs that parts are read from: those that started first.
type sources map[part]*Run

// has reports whether a part is read from the run.
func (s sources) has(p part, run *Run) bool {
	if s[p] == nil {
		s[p] = run
	}
	return s[p] == run
}

// addSamples adds samples that no other run has added.
func (s *Snapshot) addSamples(p *process, run *Run, from sources) {
	for key, sums := range p.series {
		of := part{p.info.ID, memoryPart, run.vendor}
		if key.call != (Call{}) {
			of.kind = callPart
		}
		if !from.has(of, run) {
			continue
		}
		info := p.info
		info.Labels = key.labels
		sample := Sample{Series{info, key.kind, key.device, key.call, run.vendor}, *sums, p.ended != 0}
		if of.kind == callPart {
			s.Calls = append(s.Calls, sample)
		} else {
			s.Samples = append(s.Samples, sample)
		}
	}
}

// Current returns the memory samples of running processes, for readers that do not track
// ended ones.
func (s *Store) Current() []Sample { return s.current().Samples }

// current returns the memory and the calls of running processes.
func (s *Store) current() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var snapshot Snapshot
	from, vendors := sources{}, s.vendors()
	for _, run := range s.runs {
		for _, p := range run.processes {
			if p.ended == 0 && !run.isOfAnother(p.info.ID, vendors) {
				snapshot.addSamples(p, run, from)
			}
		}
	}
	snapshot.sort()
	return snapshot
}

func (r *Run) state() GadgetState {
	state := GadgetState{Gadget: r.gadget, Rows: r.rows, Attached: -1, Node: r.node}
	if r.probes {
		pids := map[uint32]bool{}
		for a := range r.attached {
			pids[a.pid] = true
		}
		state.Attached = len(pids)
	}
	return state
}

func addDrop(all []Drop, d Drop) []Drop {
	for i := range all {
		if have := &all[i]; have.Gadget == d.Gadget && have.Reason == d.Reason && have.Node == d.Node {
			have.Count += d.Count
			have.Bytes += d.Bytes
			return all
		}
	}
	return append(all, d)
}

func (s *Snapshot) addGadget(g GadgetState) {
	for i := range s.Gadgets {
		if have := &s.Gadgets[i]; have.Gadget == g.Gadget && have.Node == g.Node {
			have.Rows += g.Rows
			have.Attached = max(have.Attached, g.Attached)
			return
		}
	}
	s.Gadgets = append(s.Gadgets, g)
}

func (s *Snapshot) sort() {
	slices.SortFunc(s.Samples, compareSamples)
	slices.SortFunc(s.Calls, compareSamples)
	slices.SortFunc(s.Drops, func(a, b Drop) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Gadget, b.Gadget), strings.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(s.Gadgets, func(a, b GadgetState) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Gadget, b.Gadget))
	})
}

func compareSamples(a, b Sample) int {
	return cmp.Or(
		strings.Compare(a.Process.Node, b.Process.Node),
		strings.Compare(a.Process.Namespace, b.Process.Namespace),
		strings.Compare(a.Process.Pod, b.Process.Pod),
		strings.Compare(a.Process.Container, b.Process.Container),
		cmp.Compare(a.Process.PID, b.Process.PID),
		strings.Compare(a.Process.Comm, b.Process.Comm),
		cmp.Compare(a.Process.ID, b.Process.ID),
		strings.Compare(a.Process.Labels, b.Process.Labels),
		cmp.Compare(a.Device, b.Device),
		strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Call.Operation, b.Call.Operation),
		strings.Compare(a.Call.Direction, b.Call.Direction),
		strings.Compare(a.Call.Error, b.Call.Error),
		a.Call.rank()-b.Call.rank(),
		strings.Compare(a.Vendor, b.Vendor),
	)
}
