// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"iter"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/splits"
)

// split has what a row says of a communicator that was made from another one.
type split struct {
	parent  uint64 // its identity; 0: none, or not known
	created collective.Time
	key     int
	// parentRank is -1 if it is not known. isDerived: so are rank and size, of all members.
	parentRank int
	isDerived  bool
}

// keep keeps the rank that was derived for an earlier row of the same communicator.
func (r *row) keep(known *row) {
	if r.Rank < 0 && known.split.isDerived && r.split.created == known.split.created && r.Communicator.Hash == known.Communicator.Hash {
		r.Rank, r.Communicator.Size, r.split.isDerived = known.Rank, known.Communicator.Size, true
	}
}

// deriveRanks derives those of communicators that were made by a split, where neither the program nor the library's memory
// says them.
func deriveRanks(all iter.Seq2[string, *rank]) {
	isNeeded := false
	for _, r := range all {
		isNeeded = isNeeded || r.Rank < 0 && !r.isCreating()
	}
	if !isNeeded {
		return
	}
	var members []*splits.Member
	var its []*rank
	for node, r := range all {
		if r.isCreating() {
			continue
		}
		s := &r.split
		members = append(members, &splits.Member{Process: splits.Process{Node: node, ID: r.Process.ID}, Identity: r.Communicator.Hash, Parent: s.parent,
			Rank: r.Rank, Size: r.Communicator.Size, Derived: s.isDerived, Key: s.key, ParentRank: s.parentRank, Age: time.Duration(r.At - s.created)})
		its = append(its, r)
	}
	splits.Fill(members)
	for n, m := range members {
		if r := its[n]; m.Derived {
			r.Rank, r.Communicator.Size, r.split.isDerived = m.Rank, m.Size, true
		}
	}
}

// all ranks of the run; there is one node.
func (i *instance) all(yield func(string, *rank) bool) {
	for _, r := range i.rows {
		if !yield("", r) {
			return
		}
	}
}

// all ranks of all nodes.
func (j *Joiner) all(yield func(string, *rank) bool) {
	for name, n := range j.nodes {
		for _, r := range n.rows {
			if !yield(name, r) {
				return
			}
		}
	}
}
