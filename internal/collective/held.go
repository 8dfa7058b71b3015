// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"slices"
)

// hold keeps the oldest operations that are not known to be done when newer ones have taken their place in the observation, at
// most History: ranks that do not wait for each operation issue more of them behind the one that hangs.
func (m *member) hold(before []Operation) {
	first := max(len(m.Operations)-History, 0) // those before it are older than the newest
	newest := m.Operations[first:]
	if len(newest) < History || len(before) == 0 {
		return // none was left out
	}
	held := slices.Clone(m.Operations[:first])
	for _, op := range before {
		if len(held) == History+first {
			break
		}
		if op.DoneBy != 0 || op.Enter >= newest[0].Enter || !m.isHeld(&op, newest) || slices.ContainsFunc(held, op.isSame) {
			continue
		}
		held = append(held, op)
	}
	slices.SortStableFunc(held, func(a, b Operation) int { return cmp.Compare(a.Enter, b.Enter) })
	m.Operations = append(held, newest...)
}

// isSame reports whether it is the same operation of the rank.
func (o *Operation) isSame(p Operation) bool {
	return o.Seq == p.Seq && o.Kind.IsPeer() == p.Kind.IsPeer() && o.Enter == p.Enter
}

// isHeld reports whether an operation that is older than the newest ones is not known to be done, nor under way, and takes over
// what these say of it: a stream executes operations one after the other.
func (m *member) isHeld(op *Operation, newest []Operation) bool {
	if m.comm.isPassed(op) || !op.Kind.IsPeer() && op.Seq <= m.Done || op.Kind.IsPeer() && op.Seq <= m.peers[peerKey{op.Kind, op.Peer}].Done {
		return false
	}
	for i := range newest {
		n := &newest[i]
		if n.Stream != op.Stream {
			continue
		}
		if n.DoneBy != 0 {
			return false
		}
		op.PendingAt = max(op.PendingAt, n.PendingAt)
	}
	if op.Return == 0 {
		op.Return = newest[0].Enter // it was called in between, or later
	}
	return true
}
