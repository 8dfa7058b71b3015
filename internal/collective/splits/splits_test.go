// SPDX-License-Identifier: Apache-2.0

package splits

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	world, even, odd, pair = 1, 2, 3, 4
	old                    = time.Minute
)

func parent(size int) (all []*Member) {
	for n := range size {
		all = append(all, &Member{Process: Process{ID: uint64(n + 1)}, Identity: world, Rank: n, Size: size, ParentRank: -1, Age: old})
	}
	return all
}

// split makes the member of a child; its rank and size are not known.
func split(identity, parent uint64, process, key, parentRank int) *Member {
	return &Member{Process: Process{ID: uint64(process + 1)}, Identity: identity, Parent: parent, Rank: -1, Key: key, ParentRank: parentRank, Age: old}
}

func fill(members ...*Member) {
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	Fill(members)
}

func places(members []*Member) (out [][2]int) {
	for _, m := range members {
		out = append(out, [2]int{m.Rank, m.Size})
	}
	return out
}

// TestRanksAreByKeyAndThenByTheParents as ncclCommSplit numbers them, also of a split of a split.
func TestRanksAreByKeyAndThenByTheParents(t *testing.T) {
	evens := []*Member{split(even, world, 0, 0, 0), split(even, world, 2, 0, 2), split(even, world, 4, -1, 4)}
	odds := []*Member{split(odd, world, 1, 7, 1)} // ranks 3 and 5 have no colour
	// The gadget did not know the parents' ranks.
	pairs := []*Member{split(pair, even, 0, 1, -1), split(pair, even, 4, 1, -1)}
	all := append(append(append(parent(6), evens...), odds...), pairs...)
	fill(all...)
	require.Equal(t, [][2]int{{1, 3}, {2, 3}, {0, 3}}, places(evens))
	require.Equal(t, [][2]int{{0, 1}}, places(odds))
	require.Equal(t, [][2]int{{1, 2}, {0, 2}}, places(pairs), "rank 0 is that of process 4")
}

func TestRanksAreUnknownUnlessAllAreThere(t *testing.T) {
	children := func() []*Member { return []*Member{split(even, world, 0, 0, 0), split(even, world, 1, 1, 1)} }
	unknown := [][2]int{{-1, 0}, {-1, 0}}

	c := children()
	fill(append(parent(3)[:2], c...)...)
	require.Equal(t, unknown, places(c), "rank 2 of the parent is elsewhere, and may be in it")

	c = children()
	c[1].Age = time.Second
	fill(append(parent(2), c...)...)
	require.Equal(t, unknown, places(c), "it was made just now")

	c = children()
	c[1].ParentRank = 0
	fill(append(parent(2), c...)...)
	require.Equal(t, unknown, places(c), "one of them lies")

	c = children()
	c[0].Rank, c[0].Size = 1, 4 // as its program has asked
	fill(append(parent(2), c...)...)
	require.Equal(t, [][2]int{{1, 4}, {-1, 0}}, places(c))
}

// TestALateMemberCorrectsTheOthers: it was stopped before it returned from the call.
func TestALateMemberCorrectsTheOthers(t *testing.T) {
	c := []*Member{split(even, world, 0, 0, 0), split(even, world, 2, 2, 2)}
	all := append(parent(3), c...)
	fill(all...)
	require.Equal(t, [][2]int{{0, 2}, {1, 2}}, places(c))
	c = append(c, split(even, world, 1, 1, 1))
	fill(append(parent(3), c...)...)
	require.Equal(t, [][2]int{{0, 3}, {2, 3}, {1, 3}}, places(c))
}
