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
	kept := m.Operations[:first]
	isKept := func(op *Operation) bool {
		return slices.ContainsFunc(kept, func(k Operation) bool { return m.id(&k) == m.id(op) })
	}
	var held []Operation
	for _, op := range before {
		if op.DoneBy != 0 || op.Enter >= newest[0].Enter || isKept(&op) || !m.isHeld(&op, newest) {
			continue
		}
		if held = append(held, op); len(held) == History {
			break
		}
	}
	if len(held) == 0 {
		return
	}
	held = append(held, kept...)
	slices.SortStableFunc(held, func(a, b Operation) int { return cmp.Compare(a.Enter, b.Enter) })
	m.Operations = append(held, newest...)
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
