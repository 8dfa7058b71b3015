// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"
	"time"
)

// Status is the progress of one rank, for tables and metrics.
type Status struct {
	Process      Process
	Communicator Communicator
	Rank, Device int
	// Several: the process has ranks on several GPUs, each of which waits for itself.
	Several bool
	State   State
	Wchan   string
	Stack   []string
	// UserLine and StackIsLast as in Observation.
	UserLine    string
	StackIsLast bool
	Late        bool
	At          Time
	// Newest operation of any kind; its Seq is 0 when there was none.
	Newest Operation
	// Issued is the number of collectives, IssuedAt the time of the newest; Done as
	// in Observation.
	Issued   uint64
	IssuedAt Time
	Done     uint64
	DoneAt   Time
	// AllArrived is the newest collective whose completion here shows that all ranks have issued it.
	AllArrived uint64
	// Waits: it is known to wait for one of its collectives now. First: the oldest one
	// that is not done is the first in its stream, before those of other communicators.
	Waits, First bool
	// Mark is the newest collective whose number is a multiple of Milestone.
	Mark   uint64
	MarkAt Time
	// MarkDigest is the digest of all collectives up to Mark, of 48 bits; 0: not known.
	MarkDigest uint64
	// Pending are collectives that were issued at least old ago and are not done, or are done here and perhaps nowhere
	// else: of these the oldest ones.
	Pending []Operation
	Peers   []PeerStatus
	// WaitShare is an upper bound of the share of the last 30 to 60 s in which the rank
	// was in a collective before the others arrived; -1: unknown.
	WaitShare float64
	// Blocked is the share of the last minute or so in which a thread waited for a collective of its process, of any communicator, on its GPU.
	Blocked float64
	// Iteration is how long an iteration of the communicator takes, and Period how many
	// collectives it has; 0: not known, or another rank of it has them.
	Iteration time.Duration
	Period    uint64
	// Waited is since when a thread waits for the newest operation; 0: none does.
	Waited Time
}

// PeerStatus is the progress of a rank with one peer.
type PeerStatus struct {
	Progress
	Waits bool
}

// old is the time after which a pending collective is shown individually.
const old = Time(5e9)

// maxUncertain bounds the operations of a rank that are shown although they are done.
const maxUncertain = 4

// Ranks returns all ranks that are known, by communicator and rank.
func (a *Analyzer) Ranks(now Time) []Status {
	a.streams = nil
	out := make([]Status, 0, a.ranks)
	several := map[processKey]bool{}
	blocked := a.blocked()
	for _, c := range a.sorted() {
		for _, m := range c.sorted() {
			s := a.status(m, now)
			s.Blocked = float64(blocked[unit{m.Process.key(), m.Device}])
			s.Several = a.unitOf(m, several).device != None
			out = append(out, s)
		}
	}
	a.streams = nil
	return out
}

func (a *Analyzer) status(m *member, now Time) Status {
	s := Status{Process: m.Process, Communicator: m.comm.Communicator, Rank: m.Rank, Device: m.Device, State: m.State, Wchan: m.Wchan,
		Stack: m.Stack, UserLine: m.UserLine, StackIsLast: m.StackIsLast, Late: m.Late, At: m.At, Issued: m.Issued, IssuedAt: m.advanced, Done: m.Done, DoneAt: m.DoneAt, AllArrived: m.passed,
		Waits: m.waits(now), Mark: m.mark, MarkAt: m.markAt, WaitShare: m.waitShare()}
	if p := m.comm.pace; p != nil && p.process == m.Process.key() {
		s.Iteration, s.Period = p.iteration(), p.period
	}
	if digest, ok := m.milestone(m.mark / Milestone); ok {
		s.MarkDigest = digest
	}
	var first *Operation
	for i := range m.Operations {
		op := &m.Operations[i]
		if op.Enter >= s.Newest.Enter {
			s.Newest = *op
		}
		if op.DoneBy == 0 && !m.State.IsDead() && op.isPending(now-fresh) && (s.Waited == 0 || op.Enter < s.Waited) {
			s.Waited = op.Enter
		}
		if op.Kind.IsPeer() {
			continue
		}
		if op.DoneBy != 0 {
			if op.Seq > m.passed && now-op.Enter >= old && len(s.Pending) < maxUncertain {
				s.Pending = append(s.Pending, *op)
			}
			continue
		}
		if first == nil {
			first = op
		}
		if now-op.Enter >= old {
			s.Pending = append(s.Pending, *op)
		}
	}
	if first != nil {
		s.First = a.front(m.Process.key(), first.Stream).comm == m.comm
	}
	for _, key := range m.sortedPeers() {
		s.Peers = append(s.Peers, PeerStatus{m.peers[key], m.pendingWith(key, now) != nil})
	}
	return s
}

// Suspects returns the processes that others wait for, or that wait themselves, for at
// least a part of the threshold. Their state and stack should be read now. The ones at
// fault come first.
func (a *Analyzer) Suspects(now Time) []Process {
	a.streams = nil
	var items []*stuck
	for _, c := range a.sorted() {
		for _, s := range a.stuckIn(c, now) {
			if now-s.since >= Time(a.cfg.Hang)/2 || len(s.mismatch) > 0 {
				items = append(items, s)
			}
		}
	}
	var out []Process
	seen := map[processKey]bool{}
	add := func(all []*member) {
		for _, m := range all {
			if key := m.Process.key(); !seen[key] && m.ended == 0 {
				seen[key] = true
				out = append(out, m.Process)
			}
		}
	}
	for _, s := range items {
		add(s.missing)
		add(s.mismatch)
	}
	for _, s := range items {
		if s.all {
			add(s.waiting)
		}
	}
	return slices.Clip(out)
}

// Quiet returns the processes for which ranks elsewhere may wait: not all ranks of their
// communicator are observed, and they have issued nothing for a part of the threshold and
// wait for nothing. Their stack should be read once, for an observer of the other ranks.
func (a *Analyzer) Quiet(now Time) (out []Process) {
	seen := map[processKey]bool{}
	for _, c := range a.sorted() {
		if c.Size <= len(c.members) {
			continue
		}
		for _, m := range c.sorted() {
			if key := m.Process.key(); !seen[key] && m.ended == 0 && len(m.Operations) > 0 && now-m.called() >= Time(a.cfg.Hang)/2 && !m.waits(now) {
				seen[key] = true
				out = append(out, m.Process)
			}
		}
	}
	return out
}
