// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// pairs compares the sends of each rank with the receives of its peer.
func (a *Analyzer) pairs(c *communicator, members []*member, now Time) (out []*stuck) {
	var elsewhere peersElsewhere
	for _, m := range members {
		for _, key := range m.sortedPeers() {
			other := c.members[key.peer]
			if other == m {
				continue
			}
			if !a.observes(other, now) {
				elsewhere.add(m, key, now)
				continue
			}
			opposite := peerKey{Send, m.Rank}
			if key.kind == Send {
				opposite.kind = Recv
			}
			mine := m.peers[key]
			theirs, known := other.peers[opposite]
			if !known && other.morePeers {
				continue // it may have called, too
			}
			if s := mismatchedPair(c, m, key, other, opposite); s != nil {
				if key.kind == Send { // once for both ends
					out = append(out, s)
				}
				continue
			}
			s := &stuck{comm: c, kind: opposite.kind, seq: theirs.Issued + 1, peer: m.Rank,
				missing: []*member{other}, waiting: []*member{m}, late: c.late}
			s.id = m.id(&Operation{Kind: key.kind, Seq: s.seq, Peer: key.peer})
			op := m.peerOperation(key, s.seq)
			if c.late {
				// The oldest one that this rank waits for, if the other has no
				// counterpart.
				op = m.pendingWith(key, now)
				if op == nil || other.pendingWith(opposite, now) != nil {
					continue
				}
			} else if mine.Issued < theirs.Issued || key.kind == Recv && mine.Done > theirs.Issued {
				continue
			} else if mine.Done > theirs.Issued {
				// Sends are complete as soon as NCCL has buffered them. Only one that waits now has a peer
				// that is missing, unless that has received it since.
				if op = m.pendingWith(key, now); op == nil || other.At <= op.Enter+fresh {
					continue
				}
			} else if mine.Issued == theirs.Issued {
				if s := a.slowPair(c, m, key, other, opposite, now); s != nil && key.kind == Send {
					out = append(out, s)
				}
				continue
			}
			if m.State.IsDead() {
				continue
			}
			s.since = mine.Enter
			if op != nil {
				s.since = op.Enter
			}
			s.since = max(s.since, theirs.Enter)
			out = append(out, s)
		}
	}
	return append(out, elsewhere.all...)
}

// mismatchedPair: the newest send and receive under the same number differ.
func mismatchedPair(c *communicator, m *member, key peerKey, other *member, opposite peerKey) *stuck {
	if c.late {
		return nil
	}
	for i := range m.Operations {
		op := &m.Operations[i]
		if op.Kind != key.kind || op.Peer != key.peer || op.DoneBy != 0 {
			continue
		}
		theirs := other.peerOperation(opposite, op.Seq)
		if theirs == nil || theirs.DoneBy != 0 || theirs.Signature() == op.Signature() {
			continue
		}
		return &stuck{comm: c, kind: op.Kind, seq: op.Seq, peer: key.peer, since: max(op.Enter, theirs.Enter),
			waiting: []*member{m, other}, mismatch: []*member{m, other}}
	}
	return nil
}

// slowPair: both have arrived and wait.
func (a *Analyzer) slowPair(c *communicator, m *member, key peerKey, other *member, opposite peerKey, now Time) *stuck {
	op, theirs := m.pendingWith(key, now), other.pendingWith(opposite, now)
	if op == nil || theirs == nil || op.Seq != theirs.Seq {
		return nil
	}
	s := &stuck{comm: c, kind: op.Kind, seq: op.Seq, peer: key.peer, since: max(op.Enter, theirs.Enter),
		waiting: []*member{m, other}, all: true, id: m.id(op)}
	s.addBlocker(a.front(m.Process.key(), op.Stream))
	s.addBlocker(a.front(other.Process.key(), theirs.Stream))
	return s
}

func (m *member) pendingWith(key peerKey, now Time) *Operation {
	if m.State.IsDead() {
		return nil
	}
	for i := range m.Operations {
		if op := &m.Operations[i]; op.Kind == key.kind && op.Peer == key.peer && op.isPending(now-fresh) {
			return op
		}
	}
	return nil
}

// sortedPeers are its peers in order. A rank keeps them, so that they are only sorted when there is a new one.
func (m *member) sortedPeers() []peerKey {
	if len(m.order) == len(m.peers) {
		return m.order
	}
	m.order = slices.SortedFunc(maps.Keys(m.peers), func(a, b peerKey) int {
		return cmp.Or(cmp.Compare(a.peer, b.peer), cmp.Compare(a.kind, b.kind))
	})
	return m.order
}

const (
	// maxPeers bounds the peers that are followed per rank: a hostile process can name any number.
	maxPeers = 4096
	// peersPerRank bounds those of all ranks together, by Config.MaxRanks.
	peersPerRank = 8
)

// follow takes in how far a rank is with its peers: what it has called, and what was counted. size is that of the
// communicator, which has no other peers. False if there was no room for some.
func (a *Analyzer) follow(m *member, counted []Progress, size int) bool {
	isWhole := true
	set := func(key peerKey, p Progress) {
		if _, known := m.peers[key]; !known {
			if p.Issued == 0 || key.peer < 0 || key.peer >= size {
				return // NCCL has refused it
			}
			if len(m.peers) >= maxPeers || !throttle.HasRoom(a.peers, peersPerRank*a.cfg.MaxRanks, func() int { return a.peersOf[m.tenant] }) {
				m.morePeers, isWhole = true, false
				return
			}
			a.peers++
			a.peersOf[m.tenant]++
		}
		m.peers[key] = p
	}
	for _, op := range m.Operations {
		if !op.Kind.IsPeer() {
			continue
		}
		if op.Seq == 0 {
			m.morePeers = true // not counted: the gadget had no room for its peer
			continue
		}
		key := peerKey{op.Kind, op.Peer}
		p := m.peers[key]
		if op.Seq >= p.Issued {
			p = Progress{Kind: op.Kind, Peer: op.Peer, Issued: op.Seq, Done: p.Done, Enter: op.Enter}
		}
		if op.DoneBy != 0 {
			p.Done = max(p.Done, op.Seq)
		}
		set(key, p)
	}
	for _, p := range counted {
		if p.Kind.IsPeer() && p.Done <= p.Issued {
			set(peerKey{p.Kind, p.Peer}, p)
		}
	}
	return isWhole
}
