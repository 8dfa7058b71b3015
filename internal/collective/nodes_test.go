// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheTensorGroupIsNamedWhateverTheClocks: rank 1 of 4 is missing in its tensor group of two, so
// its mate does not come to the operation of all. Which wait began first differs with the clocks
// of nodes, and the verdict does not.
func TestTheTensorGroupIsNamedWhateverTheClocks(t *testing.T) {
	tensor := Communicator{Hash: 0x7e4507, Name: "tensor", Size: 2}
	for _, skew := range []Time{-second / 10, second / 10} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			a := analyzer(t)
			now := 1000 * second
			all := Communicator{Hash: 0xabcdef0123, Size: 4}
			of := func(c Communicator, number int, o Observation) Observation {
				o.Communicator, o.Rank = c, number
				return o
			}
			stopped := done(rank(1, 20, now-second, now))
			observe(t, a,
				of(tensor, 0, rank(0, 21, now, now+second)), of(tensor, 1, stopped),
				of(all, 0, done(rank(0, 20, now-second, now))), of(all, 1, done(rank(1, 20, now-second, now))),
				of(all, 2, rank(2, 21, now+skew, now+second)), of(all, 3, rank(3, 21, now+skew, now+second)))
			events := a.Evaluate(now + 2*second)
			require.Len(t, events, 1)
			require.Equal(t, "tensor", events[0].Communicator.Name, events[0].String(now))
			require.Len(t, events[0].Missing, 1)
			require.EqualValues(t, 101, events[0].Missing[0].Process.PID)
			require.Equal(t, []Communicator{all}, events[0].Behind)
		})
	}
}

// TestARankIsOnOneNode: a node that claims a rank of another one does not get it, until nothing is
// heard of that one.
func TestARankIsOnOneNode(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	honest, other := rank(1, 20, now, now), rank(1, 500, now, now)
	honest.Process.Node, other.Process.Node = "a", "b"
	observe(t, a, honest)
	require.ErrorIs(t, a.Observe(other), ErrImplausible)
	require.EqualValues(t, 20, a.Ranks(now)[0].Issued)
	other.At += 61 * second
	observe(t, a, other)
	require.Equal(t, "b", a.Ranks(now)[0].Process.Node)
}
