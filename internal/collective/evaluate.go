// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"
	"sort"
)

// verdictKey identifies a verdict while it holds. Its content may change.
type verdictKey struct {
	comm  uint64
	class class
	kind  Kind
	seq   uint64
	peer  int
	rank  int // of a straggler; None
}

type class uint8

const (
	hang  class = iota
	still       // all have arrived
	differs
	late
	slower
	inCall // entered, and did not return
	unborn
)

func (v *Verdict) key() verdictKey {
	k := verdictKey{comm: v.Communicator.Hash, kind: v.Kind, seq: v.Seq, peer: v.Peer, rank: None}
	switch v.Reason {
	case Mismatch:
		if k.class = differs; v.Seq != 0 {
			return mismatchKey(v.Communicator.Hash)
		}
	case Straggler:
		k.class, k.rank = late, v.Missing[0].Rank
		k.kind, k.seq = 0, 0
	case Slow, Elsewhere:
		k.class = still
	case Slowdown:
		k.class, k.seq = slower, 0
	case Creating:
		k.class = unborn
	case Inside:
		k.class, k.seq = inCall, 0
		k.kind = 0
	}
	if (k.class == hang || k.class == still) && !v.Kind.IsPeer() {
		k.kind = 0 // it may become known later
	}
	return k
}

// mismatchKey is that of the mismatch of a communicator, of which there is one: it stays the same when an earlier call is found
// to differ.
func mismatchKey(comm uint64) verdictKey {
	return verdictKey{comm: comm, class: differs, seq: 1, peer: None, rank: None}
}

// Evaluate compares all ranks and returns the changes: new verdicts, verdicts whose
// content has changed (the missing rank has died), and those that no longer hold, with
// Cleared set. Call it about once a second.
func (a *Analyzer) Evaluate(now Time) []Verdict {
	a.streams, a.heard = nil, nil
	var items []*stuck
	for _, c := range a.sorted() {
		items = append(items, a.stuckIn(c, now)...)
	}
	current := map[verdictKey]*Verdict{}
	for _, g := range a.groups(items, now) {
		isMismatch := len(g.root.mismatch) > 0
		if now-g.oldest < Time(a.cfg.Hang) && !isMismatch {
			continue
		}
		v := a.verdict(g, now)
		current[v.key()] = v
	}
	for _, v := range a.stragglers(current, now) {
		current[v.key()] = v
	}
	for _, v := range a.slowdowns(now) {
		current[v.key()] = v
	}
	for _, v := range a.creating(now) {
		current[v.key()] = v
	}
	events := a.compare(current, now)
	a.forget(now)
	sort.SliceStable(events, func(i, j int) bool { return less(&events[i], &events[j]) })
	return events
}

// compare turns the current verdicts into changes.
func (a *Analyzer) compare(current map[verdictKey]*Verdict, now Time) (events []Verdict) {
	for key, old := range a.open {
		v := current[key]
		if v == nil {
			old.Cleared = a.clearedAt(old, now)
			events = append(events, *old)
			delete(a.open, key)
			continue
		}
		if old.Reason == Dead && v.Reason != Dead && now-old.revived(now) < settling {
			continue // it continues; what it does now is unknown yet
		}
		v.At = old.At
		if len(v.Missing) == 0 && old.Witness.Namespace != "" {
			v.Witness = old.Witness // of several, always the same
		}
		if v.Reason != Straggler {
			v.Since, v.root = min(v.Since, old.Since), min(v.root, old.root)
		} else {
			v.Since = old.Since
		}
		v.isNews(old, now)
		if v.Reason != old.Reason || v.differs != 0 && now-v.differs >= settling {
			v.At, v.reported, v.differs = now, v.Missing, 0
			changed := *v
			changed.Changed = true
			events = append(events, changed)
		}
		a.open[key] = v
	}
	for key, v := range current {
		if a.open[key] == nil {
			v.reported = v.Missing
			a.open[key] = v
			events = append(events, *v)
		}
	}
	return events
}

// isNews notes since when a verdict has named the same ranks, which are not those that were reported. While ranks
// arrive one after the other, that is reported once they stop arriving. Of ranks that made the same call, a mismatch names any.
func (v *Verdict) isNews(old *Verdict, now Time) {
	same := func(all []Culprit) bool {
		if v.Reason == Mismatch && v.Seq != 0 && v.First == 0 {
			return len(v.Missing) == len(all) && !slices.ContainsFunc(all, func(c Culprit) bool {
				return !slices.ContainsFunc(v.Missing, func(other Culprit) bool { return other.Signature == c.Signature })
			})
		}
		return slices.EqualFunc(v.Missing, all, func(a, b Culprit) bool { return a.Rank == b.Rank && a.Process.key() == b.Process.key() })
	}
	v.reported = old.reported
	switch {
	case same(old.reported):
	case old.differs != 0 && same(old.Missing):
		v.differs = old.differs
	default:
		v.differs = now
	}
}

// settling is how long a verdict about a dead process is kept after the process revives:
// it is seen running before it is seen to make a call. It is also for how long a verdict must have
// named the same other ranks before that is reported.
const settling = Time(3e9)

// revived is when it was first seen running again.
func (v *Verdict) revived(now Time) Time {
	if v.alive == 0 {
		v.alive = now
	}
	return v.alive
}

// clearedAt is when the last missing rank issued the operation, or when the operation was
// done, as exactly as the histories allow; else now.
func (a *Analyzer) clearedAt(v *Verdict, now Time) Time {
	c := a.comms[v.Communicator.Hash]
	if c == nil || v.Reason == Straggler || v.Reason == Slowdown {
		return now
	}
	var at Time
	switch v.Reason {
	case Missing, Dead, Unmatched:
		for _, culprit := range v.Missing {
			m := c.members[culprit.Rank]
			if m == nil {
				return now
			}
			op := m.operation(v.Seq)
			if v.Kind.IsPeer() {
				op = m.peerOperation(peerKey{v.Kind, v.Peer}, v.Seq)
			}
			if v.Late {
				op = m.firstAfter(v.root) // its numbers are its own
			}
			if op == nil {
				return now
			}
			at = max(at, op.Enter)
		}
	default:
		for _, m := range c.members {
			op := m.operation(v.Seq)
			if v.Kind.IsPeer() {
				op = m.peerOperation(peerKey{v.Kind, v.Peer}, v.Seq)
			}
			if op != nil && op.DoneBy != 0 && (at == 0 || op.DoneBy < at) {
				at = op.DoneBy
			}
		}
	}
	if at <= v.root || at > now {
		return now
	}
	return at
}

// firstAfter is the first operation that is known to be entered after a time.
func (m *member) firstAfter(t Time) *Operation {
	for i := range m.Operations {
		if o := &m.Operations[i]; o.Enter > t {
			return o
		}
	}
	return nil
}

// Verdicts are those that hold, in a stable order.
func (a *Analyzer) Verdicts() []Verdict {
	out := make([]Verdict, 0, len(a.open))
	for _, v := range a.open {
		out = append(out, *v)
	}
	sort.Slice(out, func(i, j int) bool { return less(&out[i], &out[j]) })
	return out
}

func less(a, b *Verdict) bool {
	x, y := a.key(), b.key()
	switch {
	case a.Since != b.Since:
		return a.Since < b.Since
	case x.comm != y.comm:
		return x.comm < y.comm
	case x.class != y.class:
		return x.class < y.class
	case x.seq != y.seq:
		return x.seq < y.seq
	case x.peer != y.peer:
		return x.peer < y.peer
	case x.rank != y.rank:
		return x.rank < y.rank
	}
	return x.kind < y.kind
}
