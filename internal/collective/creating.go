// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Creation is a rank in a call that creates a communicator, or splits one: it returns once all ranks have made it.
type Creation struct {
	At      Time
	Process Process
	// Tenant is whom the process belongs to: see Config.MaxRanks.
	Tenant string
	// Communicator and Rank are those that it will have; for a split, Rank and the size describe the parent, and the hash
	// the split.
	Communicator Communicator
	Rank         int
	// Parent is the hash of the communicator that is split; 0: none is.
	Parent uint64
	// Since is when the rank entered the call.
	Since Time
}

// minCreating is the least wait for which the creation of a communicator is reported: ranks load for different times before.
const minCreating = Time(30e9)

// creations are the ranks that create a communicator now.
type creations struct {
	of     map[uint64]map[int]Creation
	count  int
	tenant map[string]int
}

// Creates takes in a rank that creates a communicator now: it counts for the next Evaluate alone. Errors are those of Observe.
func (a *Analyzer) Creates(c Creation) error {
	size := c.Communicator.Size
	if c.Rank < 0 || size < 1 || size > MaxSize || c.Rank >= size {
		return fmt.Errorf("%w: rank %d of %d", ErrImplausible, c.Rank, size)
	}
	n := &a.creations
	if _, known := n.of[c.Communicator.Hash][c.Rank]; !known {
		if !throttle.HasRoom(n.count, a.cfg.MaxRanks, func() int { return n.tenant[c.Tenant] }) {
			return ErrFull
		}
		if n.of == nil {
			n.of, n.tenant = map[uint64]map[int]Creation{}, map[string]int{}
		}
		if n.of[c.Communicator.Hash] == nil {
			n.of[c.Communicator.Hash] = map[int]Creation{}
		}
		n.count++
		n.tenant[c.Tenant]++
	}
	n.of[c.Communicator.Hash][c.Rank] = c
	return nil
}

// creating judges communicators that ranks have been creating for long.
func (a *Analyzer) creating(now Time) (out []*Verdict) {
	for hash, ranks := range a.creations.of {
		maps.DeleteFunc(ranks, func(_ int, c Creation) bool { return now-c.At > Time(a.cfg.Silent) })
		if len(ranks) == 0 {
			continue
		}
		numbers := slices.Sorted(maps.Keys(ranks))
		first := ranks[numbers[0]]
		v := &Verdict{Reason: Creating, Communicator: first.Communicator, Peer: None, Since: first.Since, At: now, Witness: first.Process,
			Waiting: numbers[:min(len(numbers), MaxNamed)], WaitingCount: len(numbers)}
		for _, c := range ranks {
			v.Since = min(v.Since, c.Since)
		}
		if v.root = v.Since; now-v.Since < max(Time(a.cfg.Hang), minCreating) {
			continue
		}
		if first.Parent != 0 {
			v.Parent = Communicator{Hash: first.Parent}
			if parent := a.comms[first.Parent]; parent != nil {
				v.Parent = parent.Communicator
			}
		}
		for rank := range first.Communicator.Size {
			if _, isHere := ranks[rank]; isHere || a.has(hash, rank) {
				continue
			}
			if v.MoreUnseen = len(v.Unseen) == MaxNamed; v.MoreUnseen {
				break
			}
			v.Unseen = append(v.Unseen, rank)
		}
		out = append(out, v)
	}
	a.creations = creations{}
	slices.SortFunc(out, func(a, b *Verdict) int { return cmp.Compare(a.Communicator.Hash, b.Communicator.Hash) })
	return out
}

// has reports whether a rank of a communicator has been observed: for it the call has returned.
func (a *Analyzer) has(hash uint64, rank int) bool {
	c := a.comms[hash]
	return c != nil && c.members[rank] != nil
}

func (v *Verdict) creatingText(waited string) string {
	has, what := "have been", "creating communicator "+v.Communicator.String()
	if v.WaitingCount == 1 {
		has = "has been"
	}
	if v.Cleared != 0 {
		has = "had been"
	}
	if v.Parent.Hash != 0 {
		what = "splitting communicator " + v.Parent.String()
	}
	text := fmt.Sprintf("%s of %d %s %s for %s; ", ranks(v.Waiting, v.WaitingCount), v.Communicator.Size, has, what, waited)
	if len(v.Unseen) == 0 {
		return text + "all have called: the network, a GPU, or just slow"
	}
	text += ranks(v.Unseen, len(v.Unseen))
	if v.MoreUnseen {
		text += " and more"
	}
	if v.Cleared != 0 {
		return text + " had not called"
	}
	isOne, where := len(v.Unseen) == 1 && !v.MoreUnseen, ""
	if v.Witness.Node == "" { // of one node alone
		if where = ", or are on other nodes"; isOne {
			where = ", or is on another node"
		}
	}
	if isOne {
		return text + " has not called" + where + ": it may still load, or hang"
	}
	return text + " have not called" + where + ": they may still load, or hang"
}
