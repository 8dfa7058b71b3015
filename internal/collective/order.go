// SPDX-License-Identifier: Apache-2.0

package collective

import "slices"

// operationID is an operation of all ranks of a communicator (from and to are None), or of two.
type operationID struct {
	comm, seq uint64
	from, to  int
}

func (m *member) id(op *Operation) operationID {
	switch op.Kind {
	case Send:
		return operationID{m.comm.Hash, op.Seq, m.Rank, op.Peer}
	case Recv:
		return operationID{m.comm.Hash, op.Seq, op.Peer, m.Rank}
	}
	return operationID{m.comm.Hash, op.Seq, None, None}
}

// operation is that of a rank that waits; nil: it is not among the newest.
func (s *stuck) operation(m *member) *Operation {
	switch {
	case s.comm.late && s.peer == None: // numbers differ by rank
		for i := range m.Operations {
			if o := &m.Operations[i]; !o.Kind.IsPeer() && o.DoneBy == 0 && o.PendingAt != 0 {
				return o
			}
		}
		return nil
	case s.peer == None:
		return m.operation(s.seq)
	case m.Rank == s.id.from:
		return m.peerOperation(peerKey{Send, s.id.to}, s.seq)
	}
	return m.peerOperation(peerKey{Recv, s.id.from}, s.seq)
}

// order determines whether another operation comes before it in the streams of the ranks that have arrived. They have issued two in
// different orders if some have this one first, and others one that the former take part in, too.
func (a *Analyzer) order(s *stuck) {
	var first []*member // ranks that have it first
	ahead := map[*communicator]bool{}
	for _, m := range s.waiting {
		op := s.operation(m)
		if op == nil {
			continue
		}
		front := a.front(m.Process.key(), op.Stream)
		switch {
		case front.comm == nil:
		case front.id.from != None:
			s.addBlocker(front)
		case front.comm == s.comm:
			first = append(first, m)
		default:
			ahead[front.comm] = true
			if s.ahead == nil || front.comm.Hash < s.ahead.Hash {
				s.ahead = front.comm
			}
		}
	}
	for _, m := range first {
		for other := range a.members[m.Process.key()] {
			if ahead[other.comm] && (!s.inverted || other.comm.Hash < s.ahead.Hash) {
				s.inverted, s.ahead = true, other.comm
			}
		}
	}
}

// addBlocker notes what is first in a stream, if that is another operation.
func (s *stuck) addBlocker(f front) {
	if f.comm != nil && f.id != s.id && !slices.Contains(s.blockers, f.id) {
		s.blockers = append(s.blockers, f.id)
	}
}

// front is the first operation of a stream that is not known to be done.
type front struct {
	enter Time
	comm  *communicator
	id    operationID
}

type streamKey struct {
	process processKey
	stream  uint64
}

// streamState has how far a stream is, as far as that is known.
type streamState struct {
	reached Time // when the newest operation that is done, or under way, was entered
	front   front
}

// front returns that of a stream, computed once per Evaluate. What one rank has completed, if that takes all ranks, is
// under way on all, so that what is before it in their streams is done.
func (a *Analyzer) front(p processKey, stream uint64) front {
	if a.streams == nil {
		a.streams = map[streamKey]*streamState{}
		a.eachOperation(func(s *streamState, m *member, o *Operation) {
			if o.DoneBy != 0 || m.comm.isPassed(o) {
				s.reached = max(s.reached, o.Enter)
			}
		})
		a.eachOperation(func(s *streamState, m *member, o *Operation) {
			if o.DoneBy != 0 || o.Enter <= s.reached {
				return
			}
			if f := &s.front; f.comm == nil || o.Enter < f.enter || o.Enter == f.enter && m.comm.Hash < f.comm.Hash {
				*f = front{o.Enter, m.comm, m.id(o)}
			}
		})
	}
	if s := a.streams[streamKey{p, stream}]; s != nil {
		return s.front
	}
	return front{}
}

// eachOperation calls use for each operation, with its stream.
func (a *Analyzer) eachOperation(use func(*streamState, *member, *Operation)) {
	for _, c := range a.comms {
		for _, m := range c.members {
			var s *streamState
			for i := range m.Operations {
				o := &m.Operations[i]
				if s == nil || o.Stream != m.Operations[i-1].Stream {
					key := streamKey{m.Process.key(), o.Stream}
					if s = a.streams[key]; s == nil {
						s = &streamState{}
						a.streams[key] = s
					}
				}
				use(s, m, o)
			}
		}
	}
}

// isPassed reports whether a collective is known to be under way, or done, on all ranks.
func (c *communicator) isPassed(op *Operation) bool {
	return !op.Kind.IsPeer() && op.Seq <= c.passed && !c.late // numbers of late ones differ
}
