// SPDX-License-Identifier: Apache-2.0

package collective

import "slices"

// stuck is one operation in which ranks wait.
type stuck struct {
	comm *communicator
	kind Kind
	seq  uint64
	peer int // the waiting rank, for a send or receive; None
	// since is the later of two times: the first waiting rank arrived, and a missing
	// rank issued the previous operation.
	since   Time
	missing []*member
	waiting []*member
	// all: all ranks have arrived. For a mismatch, members with their calls.
	all      bool
	mismatch []*member
	// first: of a mismatch that digests show, the first collective that may be the one; seq is the last. isMost: most ranks have
	// issued the same, and mismatch has only the others.
	first  uint64
	isMost bool
	late   bool
	// inverted: of the ranks that have arrived, some have it first in their stream,
	// and others an operation of another communicator. ahead is that operation, also
	// if it is the same for all.
	inverted bool
	ahead    *communicator
	// The operation that ranks wait for, and those that come before it in their streams; of no use where numbers cannot be
	// compared.
	id       operationID
	blockers []operationID
}

// hasArrived reports whether all observed ranks have arrived, and none of them is at fault.
func (s *stuck) hasArrived() bool { return len(s.missing) == 0 && len(s.mismatch) == 0 && !s.inverted }

// fresh is the maximum age of evidence of waiting: two readings of the gadget's rows.
const fresh = Time(5e9)

// stuckIn returns the operations in which ranks of a communicator wait now, of any age.
func (a *Analyzer) stuckIn(c *communicator, now Time) []*stuck {
	members := a.observed(c, now)
	if !anyAlive(members) {
		return nil
	}
	// Operations after a mismatch are unreliable.
	if s := mismatch(c, members); s != nil {
		if earlier := c.diverged(members, s.since); earlier != nil && earlier.seq < s.seq {
			s = earlier
		}
		return []*stuck{s}
	}
	s := a.collectives(c, members, now)
	if s == nil {
		return a.pairs(c, members, now)
	}
	if now-s.since >= Time(a.cfg.Hang)/2 || a.open[mismatchKey(c.Hash)] != nil {
		if earlier := c.diverged(members, s.since); earlier != nil {
			return []*stuck{earlier}
		}
	}
	return append(a.pairs(c, members, now), s)
}

// observed returns the ranks of which there are recent observations.
func (a *Analyzer) observed(c *communicator, now Time) []*member {
	members := c.sorted()
	out := members[:0]
	for _, m := range members {
		if a.observes(m, now) {
			out = append(out, m)
		}
	}
	return out
}

func anyAlive(members []*member) bool {
	for _, m := range members {
		if !m.State.IsDead() {
			return true
		}
	}
	return false
}

// collectives compares the progress of the ranks.
func (a *Analyzer) collectives(c *communicator, members []*member, now Time) *stuck {
	if c.late {
		return a.idle(c, members, now)
	}
	low, high := ^uint64(0), uint64(0)
	for _, m := range members {
		low, high = min(low, m.Issued), max(high, m.Issued)
	}
	if high == 0 || len(members) == 0 {
		return nil
	}
	s := &stuck{comm: c, peer: None, seq: low + 1, id: operationID{c.Hash, low + 1, None, None}}
	if low == high || allWait(members, low, now) {
		if s := a.allIn(c, members, low, now); s != nil || low == high {
			return s
		}
	}
	var first, doneAt Time
	for _, m := range members {
		if m.Issued == low {
			s.missing = append(s.missing, m)
			s.since = max(s.since, m.advanced)
			continue
		}
		if m.passed >= s.seq {
			return nil // all have issued it: the "missing" rank is only observed late
		}
		entered := m.advanced // of a later one, if the history does not go back far enough
		op := m.operation(s.seq)
		if op != nil {
			entered = op.Enter
			s.kind = op.Kind
		}
		if first == 0 || entered < first {
			first = entered
		}
		if m.Done >= s.seq {
			at := m.doneTime(op)
			if at == 0 {
				return nil // unknown when
			}
			doneAt = max(doneAt, at)
		}
		if m.Done < m.Issued {
			s.waiting = append(s.waiting, m)
		}
	}
	for _, m := range s.missing {
		if doneAt != 0 && m.ended == 0 && m.At <= doneAt+fresh {
			return nil // it may have issued it since, and let the others complete it
		}
	}
	s.since = max(s.since, first)
	if !anyAlive(s.waiting) {
		return nil
	}
	return s
}

// doneTime is when the rank was known to have completed a collective, or a later one. op is nil if it is not in the history.
func (m *member) doneTime(op *Operation) Time {
	if op != nil && op.DoneBy != 0 {
		return op.DoneBy
	}
	return m.DoneAt
}

// allWait reports whether all ranks that have issued no more than so many wait for one of these. All others have issued
// that, too, so no observed rank is missing in it: the others have only run ahead, of one that reads the loss at each step.
func allWait(members []*member, issued uint64, now Time) bool {
	return !slices.ContainsFunc(members, func(m *member) bool { return m.Issued == issued && !m.waits(now) })
}

// allIn: every observed rank has issued so many operations. They are stuck if a rank
// still waits for the first that is not done.
func (a *Analyzer) allIn(c *communicator, members []*member, issued uint64, now Time) *stuck {
	done := uint64(0)
	for _, m := range members {
		done = max(done, m.Done)
	}
	if done >= issued {
		return nil
	}
	s := &stuck{comm: c, peer: None, seq: done + 1, all: true, id: operationID{c.Hash, done + 1, None, None}}
	var waits, died Time // since when a rank waits, and a first one is dead
	for _, m := range members {
		if m.State.IsDead() {
			s.missing = append(s.missing, m)
			if died == 0 || m.died < died {
				died = m.died
			}
		} else {
			s.waiting = append(s.waiting, m)
		}
		entered := m.advanced
		if op := m.operation(s.seq); op != nil {
			entered, s.kind = op.Enter, op.Kind
		}
		s.since = max(s.since, entered)
		if op := m.firstPending(now); op != nil && (waits == 0 || op.Enter < waits) {
			waits = op.Enter
		}
	}
	s.since = max(s.since, latestDone(members), waits)
	if waits == 0 {
		return nil // issued, and no thread waits for it
	}
	switch {
	case died == 0:
	case died-s.since >= Time(a.cfg.Hang):
		// The others waited already: it is the first to give up, and not the cause.
		s.missing = nil
	default:
		s.since = max(s.since, died)
	}
	a.order(s)
	return s
}

func latestDone(members []*member) (t Time) {
	for _, m := range members {
		t = max(t, m.DoneAt)
	}
	return t
}

// waits reports whether the rank is known to wait for one of its collectives now.
func (m *member) waits(now Time) bool { return m.firstPending(now) != nil }

// firstPending returns the oldest collective that it waits for now; nil: none. Older ones
// may not be known to be done either, if no thread waits for them.
func (m *member) firstPending(now Time) *Operation {
	if m.State.IsDead() {
		return nil
	}
	for i := range m.Operations {
		if op := &m.Operations[i]; !op.Kind.IsPeer() && op.isPending(now-fresh) {
			return op
		}
	}
	return nil
}

// idle judges ranks whose numbers cannot be compared: those that wait are assumed to wait
// for those that do not.
func (a *Analyzer) idle(c *communicator, members []*member, now Time) *stuck {
	s := &stuck{comm: c, peer: None, late: true}
	for _, m := range members {
		op := m.firstPending(now)
		switch {
		case op != nil:
			s.waiting = append(s.waiting, m)
			s.kind, s.seq = op.Kind, op.Seq
			s.since = max(s.since, op.Enter)
		case m.State.IsDead() || m.Issued == m.Done && m.Issued > 0:
			s.missing = append(s.missing, m)
			s.since = max(s.since, m.advanced)
		default:
			return nil // issued, not known to be done, and it does not wait: Undecided
		}
	}
	if len(s.waiting) == 0 {
		return nil
	}
	if s.all = len(s.missing) == 0; s.all {
		if a.order(s); s.inverted {
			s.inverted, s.ahead = false, nil // what is done is not known well enough
		}
	}
	return s
}

// mismatch finds the first number under which ranks issued different operations: later ones are its consequence.
func mismatch(c *communicator, members []*member) *stuck {
	if c.late || len(members) < 2 {
		return nil
	}
	done, least := uint64(0), ^uint64(0)
	for _, m := range members {
		done, least = max(done, m.passed), min(least, m.Done)
	}
	done = max(done, least)
	type call struct {
		m  *member
		op *Operation
	}
	first := map[uint64]call{}
	var found *stuck
	for _, m := range members {
		for i := range m.Operations {
			op := &m.Operations[i]
			if op.Kind.IsPeer() || op.Seq <= done {
				continue
			}
			other, known := first[op.Seq]
			if !known {
				first[op.Seq] = call{m, op}
				continue
			}
			if op.Signature() == other.op.Signature() || found != nil && found.seq <= op.Seq {
				continue
			}
			if (op.DoneBy != 0 || other.op.DoneBy != 0) && op.isAlike(other.op) {
				continue // it could be completed
			}
			found = &stuck{comm: c, kind: other.op.Kind, seq: op.Seq, peer: None}
		}
	}
	if found == nil {
		return nil
	}
	seen := map[Signature]bool{}
	for _, m := range members {
		op := m.operation(found.seq)
		if op == nil {
			continue
		}
		found.waiting = append(found.waiting, m)
		found.since = max(found.since, op.Enter)
		if s := op.Signature(); !seen[s] {
			seen[s] = true
			found.mismatch = append(found.mismatch, m)
		}
	}
	return found
}
