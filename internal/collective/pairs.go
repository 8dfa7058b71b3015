// SPDX-License-Identifier: Apache-2.0

package collective

import "sort"

// pairs compares the sends of each rank with the receives of its peer.
func (a *Analyzer) pairs(c *communicator, members []*member, now Time) (out []*stuck) {
	for _, m := range members {
		for _, key := range m.sortedPeers() {
			other := c.members[key.peer]
			if other == nil || other == m {
				continue // not seen from here
			}
			opposite := peerKey{Send, m.Rank}
			if key.kind == Send {
				opposite.kind = Recv
			}
			mine, theirs := m.peers[key], other.peers[opposite]
			if s := mismatchedPair(c, m, key, other, opposite); s != nil {
				if key.kind == Send { // once for both ends
					out = append(out, s)
				}
				continue
			}
			s := &stuck{comm: c, kind: opposite.kind, seq: theirs.Issued + 1, peer: m.Rank,
				missing: []*member{other}, waiting: []*member{m}, late: c.late}
			op := m.peerOperation(key, s.seq)
			if c.late {
				// The oldest one that this rank waits for, if the other has no
				// counterpart.
				op = m.pendingWith(key, now)
				if op == nil || other.pendingWith(opposite, now) != nil {
					continue
				}
			} else if mine.Issued < theirs.Issued || mine.Done > theirs.Issued {
				continue
			} else if mine.Issued == theirs.Issued {
				if s := slowPair(c, m, key, other, opposite, now); s != nil && key.kind == Send {
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
	return out
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
func slowPair(c *communicator, m *member, key peerKey, other *member, opposite peerKey, now Time) *stuck {
	op, theirs := m.pendingWith(key, now), other.pendingWith(opposite, now)
	if op == nil || theirs == nil || op.Seq != theirs.Seq {
		return nil
	}
	return &stuck{comm: c, kind: op.Kind, seq: op.Seq, peer: key.peer, since: max(op.Enter, theirs.Enter),
		waiting: []*member{m, other}, all: true}
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

func (m *member) sortedPeers() []peerKey {
	out := make([]peerKey, 0, len(m.peers))
	for k := range m.peers {
		out = append(out, k)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].peer != out[j].peer {
			return out[i].peer < out[j].peer
		}
		return out[i].kind < out[j].kind
	})
	return out
}
