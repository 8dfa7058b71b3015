// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Milestone divides the numbers of collectives whose times are kept: for each rank, when it
// entered its newest one. By these, ranks of different nodes can be compared from their
// metrics alone.
const Milestone = 16

// arrivals of a communicator's ranks at its newest collectives that all of them are known
// to have entered. A burst of operations is one arrival, that of its first: a rank that
// is late there is late in all of them, which is one observation and not ten.
type arrivals struct {
	next  uint64 // the next number to process
	ranks []int  // sorted; start again if they change
	// first is when the first rank arrived, late by how many microseconds each rank
	// was later: len(ranks) of them for each of at most Arrivals collectives, in a
	// ring.
	first []Time
	late  []uint32
	gap   []time.Duration // without any operation, before each
	head  int
	// last is when the last rank arrived at the previous operation, and longest the
	// longest time without any operation, in this period and the last one.
	last    Time
	longest [2]Time
	period  Time
	waiting waiting
	// behind is a rank that was last seen to have not issued next: until it does, the others need
	// not be compared, which would be all ranks for each observation of one.
	behind *member
}

// add processes the collectives of c that the newest observation completes.
func (r *arrivals) add(c *communicator) {
	if c.late || len(c.members) < 2 {
		return
	}
	next := max(r.next, 1)
	if m := r.behind; m != nil && m.Issued < next && c.members[m.Rank] == m {
		return
	}
	low := ^uint64(0)
	for _, m := range c.members {
		if m.Issued < next {
			r.behind = m
			return
		}
		low = min(low, m.Issued)
	}
	members := c.sorted()
	if !slices.EqualFunc(members, r.ranks, func(m *member, rank int) bool { return m.Rank == rank }) {
		*r = arrivals{next: r.next, ranks: make([]int, len(members))} // and none is behind
		for i, m := range members {
			r.ranks[i] = m.Rank
		}
	}
	r.next = max(r.next, 1)
	// Collectives that are in no rank's history any more are skipped.
	if low > History {
		r.next = max(r.next, low-History+1)
	}
	enter := make([]Time, len(members))
	for ; r.next <= low; r.next++ {
		first, isWhole := Time(0), true
		for i, m := range members {
			op := m.operation(r.next)
			if op == nil {
				isWhole = false // between two observations of some rank
				break
			}
			enter[i] = op.Enter
			if first == 0 || op.Enter < first {
				first = op.Enter
			}
		}
		if isWhole && r.last != 0 {
			r.waiting.add(r.last, enter)
		}
		if isWhole && r.isBurst(first) {
			r.put(first, enter)
		}
		r.last = 0
		if isWhole {
			r.last = slices.Max(enter)
		}
	}
}

// pause is the period over which the longest one is determined: longer than a step.
const pause = Time(30e9)

// isBurst reports whether an operation that began at first starts a series.
func (r *arrivals) isBurst(first Time) bool {
	gap := first - r.last
	if r.period == 0 {
		r.period = first
	}
	if r.last == 0 {
		return false
	}
	for ; first-r.period > pause; r.period += pause {
		r.longest = [2]Time{0, r.longest[0]}
		if first-r.period > 3*pause {
			r.period = first - pause
		}
	}
	r.longest[0] = max(r.longest[0], gap)
	return gap > 0 && gap >= max(r.longest[0], r.longest[1])/2
}

func (r *arrivals) put(first Time, enter []Time) {
	n := len(r.ranks)
	if len(r.first) < Arrivals {
		r.first, r.late, r.gap = append(r.first, 0), append(r.late, make([]uint32, n)...), append(r.gap, 0)
		r.head = len(r.first) - 1
	}
	r.first[r.head], r.gap[r.head] = first, time.Duration(first-r.last)
	row := r.late[r.head*n : (r.head+1)*n]
	for i, t := range enter {
		row[i] = uint32(min((t-first)/1000, 1<<32-1))
	}
	r.head = (r.head + 1) % Arrivals
}

// row returns by how much each of ranks was late in one of the collectives.
func (r *arrivals) row(i int) []uint32 { n := len(r.ranks); return r.late[i*n : (i+1)*n] }

// stragglers returns the ranks that arrive last in most collectives, by more than chance
// and clocks explain. A process that waits for a straggler in one communicator is late in
// its others: only the first cause is named.
func (a *Analyzer) stragglers(current map[verdictKey]*Verdict, now Time) (out []*Verdict) {
	stuck := map[uint64]bool{}
	for _, v := range current {
		stuck[v.Communicator.Hash] = true
		for _, c := range v.Behind {
			stuck[c.Hash] = true
		}
	}
	var found []*Verdict
	for _, c := range a.sorted() {
		if stuck[c.Hash] {
			continue
		}
		if v := a.straggler(c, now); v != nil {
			found = append(found, v)
		}
	}
	// The communicator that is reported stays the one, if the same process is the last in more of them later.
	slices.SortStableFunc(found, func(v, w *Verdict) int {
		return cmp.Compare(a.newness(v), a.newness(w))
	})
	byProcess := map[processKey]*Verdict{}
	for _, v := range found {
		p := v.Missing[0].Process.key()
		if a.isBehind(p, v.Communicator.Hash, found) {
			continue
		}
		if first := byProcess[p]; first != nil {
			first.Behind = append(first.Behind, v.Communicator)
			continue
		}
		byProcess[p] = v
		out = append(out, v)
	}
	return out
}

// newness is 0 for verdicts that hold already, and 1 for others.
func (a *Analyzer) newness(v *Verdict) int {
	if a.open[v.key()] != nil {
		return 0
	}
	return 1
}

// isBehind reports whether the process is also in a communicator in which another one is the last.
func (a *Analyzer) isBehind(p processKey, hash uint64, found []*Verdict) bool {
	for m := range a.members[p] {
		if m.comm.Hash == hash {
			continue
		}
		for _, v := range found {
			other := v.Missing[0].Process.key()
			if v.Communicator.Hash == m.comm.Hash && other != p && !a.isLastIn(p, v.Communicator.Hash, found) {
				return true
			}
		}
	}
	return false
}

func (a *Analyzer) isLastIn(p processKey, hash uint64, found []*Verdict) bool {
	for _, v := range found {
		if v.Communicator.Hash == hash && v.Missing[0].Process.key() == p {
			return true
		}
	}
	return false
}

// straggler of a communicator, from its newest arrivals; nil: none.
func (a *Analyzer) straggler(c *communicator, now Time) *Verdict {
	r := &c.arrivals
	n := len(r.first)
	if n < Arrivals/2 {
		return nil
	}
	last := make([]int, len(r.ranks))
	for i := range n {
		row := r.row(i)
		last[slices.Index(row, slices.Max(row))]++
	}
	times := slices.Max(last)
	who := slices.Index(last, times)
	// 5.2 standard deviations more often than one of two equal ranks would be:
	// one window in ten million.
	if float64(times) < float64(n)/2+2.6*math.Sqrt(float64(n)) {
		return nil
	}
	m := c.members[r.ranks[who]]
	if m == nil || m.State.IsDead() || m.isSilent(now, a.cfg.Silent) {
		return nil
	}
	// Lateness: how much sooner the others would continue without this rank.
	late := make([]time.Duration, n)
	for i := range n {
		row := r.row(i)
		var second uint32
		for j, d := range row {
			if j != who {
				second = max(second, d)
			}
		}
		late[i] = (time.Duration(row[who]) - time.Duration(second)) * time.Microsecond
	}
	slices.Sort(late)
	gaps := slices.Sorted(slices.Values(r.gap))
	p50, p99 := late[n/2], late[n*99/100]
	if p50 < max(a.cfg.Straggler, time.Duration(a.cfg.StragglerShare*float64(gaps[n/2]))) {
		return nil
	}
	culprit := Culprit{Rank: m.Rank, Process: m.Process, State: m.State, Wchan: m.Wchan, Issued: m.Issued, At: m.At, P50: p50, P99: p99}
	if op := m.operation(m.Issued); op != nil && op.Line != "" {
		culprit.Stack, culprit.UserLine, culprit.StackIsLast = []string{op.Line}, "", true
	}
	v := &Verdict{Reason: Straggler, Communicator: c.Communicator, Peer: None, Since: slices.Min(r.first), At: now, Missing: []Culprit{culprit}}
	for _, rank := range r.ranks {
		if rank == m.Rank {
			continue
		}
		v.WaitingCount++
		if len(v.Waiting) < MaxNamed {
			v.Waiting = append(v.Waiting, rank)
		}
	}
	return v
}
