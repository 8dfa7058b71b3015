// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func creation(n int, at, since Time) Creation {
	return Creation{At: at, Since: since, Process: Process{ID: uint64(n + 1)}, Communicator: Communicator{Hash: 7, Size: 4}, Rank: n}
}

// TestTheCreationOfACommunicatorIsWaitedFor: rank 1 comes after 50 s.
func TestTheCreationOfACommunicatorIsWaitedFor(t *testing.T) {
	texts := judged(t, 80, func(a *Analyzer, at Time) {
		for n := range 4 {
			switch {
			case at-start >= 50*second:
				observe(t, a, of4(n, 1, 1, at, op(AllReduce, 1, start+50*second).doneBy(start+50*second+1)))
			case n != 1 && at >= start+Time(n)*second:
				require.NoError(t, a.Creates(creation(n, at, start+Time(n)*second)))
			}
		}
	})
	require.Equal(t, []string{
		"found at 30s: ranks 0, 2, 3 of 4 have been creating communicator 0x00000007 for 30s; rank 1 has not called, or is on another node: it may still load, or hang",
		"cleared at 50s: ranks 0, 2, 3 of 4 had been creating communicator 0x00000007 for 50s; rank 1 had not called",
	}, texts)
}

// TestASplitIsWaitedFor by the ranks of the parent, where all nodes are seen. Whether the ranks wait for the network or
// for each other does not make it a fault.
func TestASplitIsWaitedFor(t *testing.T) {
	split := func(n int, at Time) Creation {
		c := creation(n, at, start)
		c.Communicator.Hash, c.Parent, c.Process.Node = 8, 7, "a"
		return c
	}
	texts := judged(t, 40, func(a *Analyzer, at Time) {
		for n := range 4 {
			o := of4(n, 1, 1, at, op(AllReduce, 1, start-second).doneBy(start-second+1))
			o.Communicator.Name, o.Process.Node = "world", "a"
			if observe(t, a, o); n < 2 {
				require.NoError(t, a.Creates(split(n, at)))
			}
		}
	})
	require.Equal(t, []string{"found at 30s: ranks 0, 1 of 4 have been splitting communicator world (0x00000007) for 30s; ranks 2, 3 have not called: they may still load, or hang"}, texts)
	texts = judged(t, 40, func(a *Analyzer, at Time) {
		for n := range 4 {
			require.NoError(t, a.Creates(creation(n, at, start)))
		}
	})
	require.Equal(t, []string{"found at 30s: ranks 0-3 of 4 have been creating communicator 0x00000007 for 30s; all have called: the network, a GPU, or just slow"}, texts)
}

func TestHostileCreations(t *testing.T) {
	a, err := New(Config{MaxRanks: 4})
	require.NoError(t, err)
	for _, c := range []Creation{{}, {Rank: -1, Communicator: Communicator{Size: 2}}, {Rank: 2, Communicator: Communicator{Size: 2}}, {Communicator: Communicator{Size: 1 << 30}}} {
		require.ErrorIs(t, a.Creates(c), ErrImplausible)
	}
	for range 3 {
		for n := range 3 {
			require.NoError(t, a.Creates(creation(n, start, 1)))
		}
	}
	require.ErrorIs(t, a.Creates(creation(3, start, 1)), ErrFull, "the last quarter is for others")
	require.Len(t, a.Evaluate(start), 1)
	require.Len(t, a.Evaluate(start+second), 1, "it is cleared")
	require.Empty(t, a.Verdicts())
}
