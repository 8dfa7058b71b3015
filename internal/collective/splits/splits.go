// SPDX-License-Identifier: Apache-2.0

// Package splits derives the ranks of communicators that were made by ncclCommSplit or ncclCommShrink. NCCL numbers them by
// the key that each rank has passed, then by its rank in the parent. No rank knows the others' keys, so all of them have
// to be observed; and since a rank of the parent may not take part, all ranks of the parent have to be.
package splits

import (
	"cmp"
	"slices"
	"time"
)

// Settled is how old the newest member has to be. All ranks of the parent return from the call within seconds, and until
// they have, one that is not there yet cannot be distinguished from one that does not take part.
const Settled = 10 * time.Second

// Member is one rank of one communicator.
type Member struct {
	// Process is unique over all nodes.
	Process          Process
	Identity, Parent uint64 // 0: not known, or none
	// Rank and Size in the communicator; -1 and 0: not known. Derived: they are the result of an earlier Fill, in which
	// there may have been fewer members.
	Rank, Size int
	Derived    bool
	// Key that it passed, and its rank in the parent; -1: that is not known.
	Key, ParentRank int
	// Age is how long ago the communicator was made there.
	Age time.Duration
}

// Process of a member.
type Process struct {
	Node string
	ID   uint64
}

// Fill sets Rank, Size and Derived of members for which these can be derived.
func Fill(all []*Member) {
	of := map[uint64][]*Member{}
	var open []uint64
	for _, m := range all {
		if m.Identity != 0 {
			of[m.Identity] = append(of[m.Identity], m)
		}
	}
	for identity, members := range of {
		if slices.ContainsFunc(members, func(m *Member) bool { return m.Parent != 0 && (m.Rank < 0 || m.Size == 0) }) {
			open = append(open, identity)
		}
	}
	// A child of a split can be derived once that one is.
	for isNew := true; isNew && len(open) > 0; {
		isNew = false
		open = slices.DeleteFunc(open, func(identity uint64) bool {
			members := of[identity]
			done := derive(members, of[members[0].Parent])
			isNew = isNew || done
			return done
		})
	}
}

// derive derives the ranks of a communicator; false: they cannot be.
func derive(members, parent []*Member) bool {
	ranks := whole(parent)
	if ranks == nil {
		return false
	}
	for _, m := range members {
		if m.Parent != members[0].Parent || m.Age < Settled {
			return false
		}
		if m.ParentRank < 0 {
			// Its parent's rank was not known when it was made.
			m.ParentRank = rankIn(parent, m.Process)
		}
		if m.ParentRank < 0 || m.ParentRank >= len(ranks) {
			return false
		}
		ranks[m.ParentRank]++
	}
	if slices.Max(ranks) > 1 {
		return false // two members claim to be the same one
	}
	order := slices.SortedFunc(slices.Values(members), func(a, b *Member) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.ParentRank, b.ParentRank))
	})
	for n, m := range order {
		if !m.Derived && (m.Rank >= 0 && m.Rank != n || m.Size > 0 && m.Size != len(order)) {
			return false // there are others
		}
	}
	for n, m := range order {
		m.Rank, m.Size, m.Derived = n, len(order), true
	}
	return true
}

// whole returns a zero for each rank of a communicator, if all are there; else nil.
func whole(members []*Member) []int {
	if len(members) == 0 || len(members) != members[0].Size {
		return nil
	}
	seen := make([]int, len(members))
	for _, m := range members {
		if m.Rank < 0 || m.Rank >= len(seen) || m.Size != len(seen) || seen[m.Rank] > 0 {
			return nil
		}
		seen[m.Rank]++
	}
	clear(seen)
	return seen
}

// rankIn is the rank of a process in a communicator; -1: it has none, or several.
func rankIn(members []*Member, p Process) int {
	rank := -1
	for _, m := range members {
		if m.Process != p {
			continue
		}
		if rank >= 0 {
			return -1
		}
		rank = m.Rank
	}
	return rank
}
