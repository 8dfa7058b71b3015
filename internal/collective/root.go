// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"maps"
	"slices"
	"sort"
)

// group is one cause and everything that waits for it.
type group struct {
	root    *stuck
	missing []*member // processes of the root that wait nowhere else
	behind  []*stuck
	oldest  Time // since when the first of them waits
	cycle   bool
}

// groups joins operations that are stuck for the same reason.
//
// A stuck operation waits for its missing processes. A missing process that itself waits
// in another operation is not a cause but a consequence. So following the missing ones
// ends at processes that wait for no other, and operations that end at the same one form
// a group. If it does not end, ranks wait for each other.
func (a *Analyzer) groups(items []*stuck, now Time) []*group {
	sort.SliceStable(items, func(i, j int) bool { return items[i].before(items[j]) })
	a.divide(items)
	// in has the operations that a process, or one of its GPUs, waits in. A wait counts as a cause only if it
	// is not much younger than the wait that it explains: a process that continues
	// elsewhere, with short waits, is not stuck there.
	in := map[unit][]int{}
	for n, s := range items {
		if now-s.since < Time(a.cfg.Hang)/2 {
			continue
		}
		for _, m := range s.waiting {
			if !m.State.IsDead() {
				if its := in[m.unit]; len(its) == 0 || its[len(its)-1] != n { // once, whichever of its ranks wait
					in[m.unit] = append(its, n)
				}
			}
		}
	}
	cause := explain(items, in)
	a.merge(items, in, cause)
	a.mergeLost(items, cause, now)
	byRoot := map[int]*group{}
	var out []*group
	for n, s := range items {
		r := cause[n]
		g := byRoot[r]
		if g == nil {
			g = &group{root: items[r], oldest: s.since}
			g.missing, g.cycle = free(items[r], in, r)
			byRoot[r] = g
			out = append(out, g)
		}
		g.oldest = min(g.oldest, s.since)
		if n != r {
			g.behind = append(g.behind, s)
		}
	}
	return out
}

// merge merges causes for which the same processes are missing. It prefers a missing
// receive or send, which shows who waits for whom: stages of a pipeline receive before
// they send. Then it prefers the operation with the fewest missing ranks that wait elsewhere: a
// tensor group's, in which one rank is missing, to that of all ranks, in which the whole group is.
// Which of them began first is known no better than the nodes' clocks.
func (a *Analyzer) merge(items []*stuck, in map[unit][]int, cause []int) {
	byProcess := map[processKey]int{} // whichever of its GPUs
	same := map[int]int{}
	order := make([]int, 0, len(items))
	entangled := make([]int, len(items))
	for n, s := range items {
		if cause[n] != n {
			continue
		}
		order = append(order, n)
		for _, m := range s.missing {
			if !m.State.IsDead() && waitsElsewhere(in, m.unit, n) {
				entangled[n]++
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(entangled[a], entangled[b]) })
	for rank := range 3 {
		for _, n := range order {
			s := items[n]
			if s.precedence() != rank {
				continue
			}
			for _, m := range s.missing {
				if !m.State.IsDead() && waitsElsewhere(in, m.unit, n) {
					continue
				}
				if first, known := byProcess[m.Process.key()]; known {
					if _, done := same[n]; !done && first != n {
						if to, moved := same[first]; moved {
							first = to
						}
						same[n] = first
					}
				} else if _, done := same[n]; !done {
					byProcess[m.Process.key()] = n
				}
			}
		}
	}
	for n := range cause {
		if to, moved := same[cause[n]]; moved {
			cause[n] = to
		}
	}
}

func (s *stuck) precedence() int {
	switch {
	case s.peer == None:
		return 2
	case s.kind == Send:
		return 1
	}
	return 0
}

// before is an order that does not depend on the iteration of maps.
func (s *stuck) before(o *stuck) bool {
	switch {
	case s.since != o.since:
		return s.since < o.since
	case s.comm.Hash != o.comm.Hash:
		return s.comm.Hash < o.comm.Hash
	case s.peer != o.peer:
		return s.peer < o.peer
	case s.kind != o.kind:
		return s.kind < o.kind
	}
	return s.seq < o.seq
}

func waitsElsewhere(in map[unit][]int, u unit, n int) bool {
	for _, i := range in[u] {
		if i != n {
			return true
		}
	}
	return false
}

// free returns the missing processes that wait nowhere else: the causes. If there is
// none, ranks wait for each other, and all are named.
func free(s *stuck, in map[unit][]int, n int) (out []*member, cycle bool) {
	for _, m := range s.missing {
		if m.State.IsDead() || !waitsElsewhere(in, m.unit, n) {
			out = append(out, m)
		}
	}
	if len(out) == 0 && len(s.missing) > 0 {
		return s.missing, true
	}
	return out, false
}

// verdict of a group.
func (a *Analyzer) verdict(g *group, now Time) *Verdict {
	s := g.root
	v := &Verdict{Communicator: s.comm.Communicator, Kind: s.kind, Seq: s.seq, Peer: s.peer, Since: s.since, At: now, Late: s.late, root: s.since}
	blamed := g.missing
	switch {
	case len(s.mismatch) > 0:
		v.Reason, blamed = Mismatch, s.mismatch
		v.First, v.isMost = s.first, s.isMost
	case g.cycle:
		v.Reason, v.Seq = Mismatch, 0
	case s.inverted:
		v.Reason, v.Seq, blamed = Mismatch, 0, s.waiting
	case len(s.missing) > 0:
		v.Reason = Missing
		if s.peer != None {
			v.Reason = Unmatched
		}
		var dead []*member
		for _, m := range blamed {
			if m.State.IsDead() {
				dead = append(dead, m)
			}
		}
		if len(dead) > 0 {
			v.Reason, blamed = Dead, dead
		}
	default:
		v.Reason = Slow
		if s.peer == None {
			v.Unseen, v.MoreUnseen = a.unobserved(s.comm, now)
		} else if !a.observes(s.comm.members[s.peer], now) {
			v.Unseen = []int{s.peer}
		}
		if len(v.Unseen) > 0 {
			v.Reason, v.Lost = Elsewhere, a.lostNodes(g, now)
		}
	}
	blamed = a.blameInside(v, s, blamed, now)
	v.Groups = groupStacks(a.observed(s.comm, now))
	v.Groups = v.Groups[:min(len(v.Groups), MaxNamed)]
	for _, m := range blamed {
		if len(v.Missing) < MaxNamed {
			v.Missing = append(v.Missing, m.culprit(s))
		}
	}
	if len(v.Missing) == 0 && len(s.waiting) > 0 {
		v.Witness = s.waiting[0].Process
	}
	waiting := map[int]bool{}
	for _, other := range append([]*stuck{s}, g.behind...) {
		if other.comm != s.comm {
			continue
		}
		for _, m := range other.waiting {
			if !m.State.IsDead() && (v.Reason != Inside || !slices.Contains(blamed, m)) {
				waiting[m.Rank] = true
				v.Since = min(v.Since, other.since)
			}
		}
	}
	v.Waiting = slices.Sorted(maps.Keys(waiting))
	v.WaitingCount = len(v.Waiting)
	v.Waiting = v.Waiting[:min(v.WaitingCount, MaxNamed)]
	named := map[uint64]bool{s.comm.Hash: true}
	if s.inverted && !named[s.ahead.Hash] {
		named[s.ahead.Hash] = true
		v.Behind = append(v.Behind, s.ahead.Communicator)
	}
	for _, b := range g.behind {
		if h := b.comm.Hash; !named[h] {
			named[h] = true
			v.Behind = append(v.Behind, b.comm.Communicator)
		}
	}
	return v
}

func (m *member) culprit(s *stuck) Culprit {
	c := Culprit{Rank: m.Rank, Process: m.Process, State: m.State, Wchan: m.Wchan, Stack: m.Stack, UserLine: m.UserLine,
		StackIsLast: m.StackIsLast, Issued: m.Issued, At: m.At}
	op := m.operation(s.seq)
	if s.peer != None {
		op = nil
		for i := range m.Operations {
			if o := &m.Operations[i]; o.Kind.IsPeer() && o.Seq == s.seq && (o.Peer == s.peer || len(s.mismatch) > 0) {
				op = o
			}
		}
	}
	if op != nil {
		c.Signature = op.Signature()
		if len(c.Stack) == 0 && op.Line != "" {
			c.Stack, c.UserLine, c.StackIsLast = []string{op.Line}, "", true
		}
	}
	return c
}
