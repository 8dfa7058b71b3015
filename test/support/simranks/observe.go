// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// perNode is how many processes run on a node.
const perNode = 8

// Process is the process as the analyzer sees it.
func (j *Job) Process(n int) collective.Process {
	return collective.Process{Node: fmt.Sprintf("node%d", n/perNode), ID: uint64(n + 1), PID: uint32(1000 + n%perNode), Comm: "python3"}
}

// state of a process at a time.
func (p *process) state(at collective.Time) collective.State {
	for _, s := range p.states {
		if s.from <= at && at < s.to {
			return s.state
		}
	}
	for i := len(p.waits) - 1; i >= 0 && i >= len(p.waits)-2; i-- {
		if w := p.waits[i]; w.from <= at && (w.to == 0 || at < w.to) {
			return collective.Running // cuStreamSynchronize polls
		}
	}
	return collective.Sleeping
}

// waiting returns how many operations a wait at the time covers, and whether one is
// under way.
func (p *process) waiting(at collective.Time) (issued int, ok bool) {
	i := sort.Search(len(p.waits), func(i int) bool { return p.waits[i].from > at })
	if i == 0 {
		return 0, false
	}
	w := p.waits[i-1]
	return w.issued, w.to == 0 || at < w.to
}

// queries is how often a watchdog queries what was issued, as PyTorch's does.
const queries = collective.Time(100 * time.Millisecond)

// queried is when the watchdog of a process did so last; 0: it has none, or did not yet.
func (j *Job) queried(p *process, at collective.Time) collective.Time {
	if !j.hasWatchdog {
		return 0
	}
	for _, s := range p.states {
		if s.from <= at && at < s.to {
			at = s.from
		}
	}
	return at / queries * queries
}

// Observe returns the observations of every rank of a process at a time. Operations
// before late were not seen, and numbers begin there; 0: all were seen.
func (j *Job) Observe(n int, at, late collective.Time) (out []collective.Observation) {
	p, process := j.processes[n], j.Process(n)
	covered, isWaiting := p.waiting(at)
	queried := j.queried(p, at)
	end := sort.Search(len(p.records), func(i int) bool { return p.records[i].Enter > at })
	for _, g := range j.Groups {
		rank := g.rank(n)
		if rank < 0 {
			continue
		}
		o := collective.Observation{At: at, Process: process, Communicator: g.Communicator, Rank: rank, Device: n % perNode,
			Late: late != 0, State: p.state(at)}
		var skipped map[countKey]uint64
		if late != 0 {
			skipped = map[countKey]uint64{}
			for i := range end {
				if r := &p.records[i]; r.group == g && r.Enter < late {
					skipped[countOf(r)] = r.Seq
				}
			}
		}
		for i := end - 1; i >= 0; i-- {
			r := &p.records[i]
			if r.group != g || r.Enter < late {
				continue
			}
			op := r.seen(at, isWaiting && i < covered, queried)
			op.Seq -= skipped[countOf(r)]
			if !op.Kind.IsPeer() {
				o.Issued = max(o.Issued, op.Seq)
				if op.DoneBy != 0 && op.Seq > o.Done {
					o.Done, o.DoneAt = op.Seq, op.DoneBy
				}
			}
			if len(o.Operations) < collective.History {
				o.Operations = append(o.Operations, op) // the newest first, until all are there
			} else if o.Done > 0 {
				break
			}
		}
		if i := j.oldest(p, g, late, at); i >= 0 {
			op := p.records[i].seen(at, isWaiting && i < covered, queried)
			op.Seq -= skipped[countOf(&p.records[i])]
			o.Operations = append(o.Operations, op)
		}
		slices.Reverse(o.Operations)
		if len(o.Operations) == 0 && late != 0 {
			continue // nothing was seen of it
		}
		if d := p.digests[g]; d != nil && late == 0 {
			o.Digests = d.at(at)
		}
		o.Stack = p.stack(at, isWaiting)
		out = append(out, o)
	}
	return out
}

// seen is the operation as the gadget has it at a time. isCovered: a wait covers it; queried: when the watchdog queried it.
func (r *record) seen(at collective.Time, isCovered bool, queried collective.Time) collective.Operation {
	op := r.Operation
	if op.Return > at {
		op.Return = 0
	}
	if op.DoneBy > at {
		op.DoneBy = 0
	}
	if isCovered && op.DoneBy == 0 {
		op.PendingAt = at
	}
	if answered := r.answered(); r.done != 0 && answered <= queried && (op.DoneBy == 0 || answered < op.DoneBy) {
		op.DoneBy, op.PendingAt = answered, 0
	} else if op.DoneBy == 0 && op.Return != 0 && op.Return <= queried {
		op.PendingAt = max(op.PendingAt, queried)
	}
	return op
}

// answered is when a watchdog knows that it is done.
func (r *record) answered() collective.Time { return (r.done + queries - 1) / queries * queries }

// isDone reports whether an operation of the process was known to be done at a time.
func (j *Job) isDone(p *process, i int, at collective.Time) bool {
	r := &p.records[i]
	return r.DoneBy != 0 && r.DoneBy <= at || j.hasWatchdog && r.done != 0 && r.answered() <= j.queried(p, at)
}

// kept is the collective of a communicator that the gadget keeps beside the newest operations, from a time on.
type kept struct {
	since  collective.Time
	record int
}

// allKept are those of a finished run: each is the first that was not known to be done when a newer one took its place.
func (j *Job) allKept(p *process, g *Group) (all []kept) {
	var ring []int
	for i := range p.records {
		r := &p.records[i]
		if r.group != g {
			continue
		}
		if ring = append(ring, i); len(ring) <= collective.History {
			continue
		}
		replaced := ring[0]
		ring = ring[1:]
		isFree := len(all) == 0 || j.isDone(p, all[len(all)-1].record, r.Enter)
		if isFree && !p.records[replaced].Kind.IsPeer() && !j.isDone(p, replaced, r.Enter) {
			all = append(all, kept{r.Enter, replaced})
		}
	}
	return all
}

// oldest is the record that is kept at a time; -1: none.
func (j *Job) oldest(p *process, g *Group, late, now collective.Time) int {
	all, ok := p.kept[g]
	if !ok {
		all = j.allKept(p, g)
		p.kept[g] = all
	}
	n := sort.Search(len(all), func(i int) bool { return all[i].since > now })
	if n == 0 || p.records[all[n-1].record].Enter < late || j.isDone(p, all[n-1].record, now) {
		return -1
	}
	return all[n-1].record
}

func countOf(r *record) countKey {
	if r.Kind.IsPeer() {
		return countKey{r.group, r.Kind, r.Peer}
	}
	return countKey{r.group, 0, 0}
}

// stack is where the host is.
func (p *process) stack(at collective.Time, isWaiting bool) []string {
	if isWaiting {
		return []string{"train.py:90 synchronize", "train.py:30 step"}
	}
	return []string{"data.py:7 load", "train.py:20 step"}
}
