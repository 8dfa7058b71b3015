// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChangePointIsFound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	series := func(n, change int, factor float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = 1 + 0.1*random.Float64()
			if i >= change {
				out[i] *= factor
			}
			if random.IntN(20) == 0 {
				out[i] *= 100 // a checkpoint
			}
		}
		return out
	}
	for _, change := range []int{30, 64, 100} {
		at, p := changePoint(series(128, change, 1.3))
		require.InDelta(t, change, at, 5)
		require.Less(t, p, surely)
	}
	least := 1.0
	for range 2000 {
		_, p := changePoint(series(128, 128, 1))
		least = min(least, p)
	}
	require.Greater(t, least, surely, "none of 2,000 series without a change has one")

	// U of 1, 2, 3, 4 is -3, -4, -3, so that K is 4 and p = 2 exp(-96/80).
	at, p := changePoint([]float64{1, 2, 3, 4})
	require.Equal(t, 2, at)
	require.InDelta(t, 0.6024, p, 1e-4)
	_, p = changePoint([]float64{5, 5, 5})
	require.InDelta(t, 1, p, 0)
	_, p = changePoint(nil)
	require.InDelta(t, 1, p, 0)
}

// TestPaceFindsTheShortestSequenceThatRepeats although an observation has the newest 16
// collectives only, and a step 23.
func TestPaceFindsTheShortestSequenceThatRepeats(t *testing.T) {
	a := analyzer(t)
	const period = 23
	step := Time(700e6)
	operation := func(seq uint64) Operation {
		at := 1000*second + Time(seq/period)*step + Time(seq%period)*Time(1e6)
		count := uint64(64)
		if seq%period == 7 {
			count = 65
		}
		return Operation{Seq: seq, Kind: AllReduce, Count: count, DType: Float32, Peer: None, Enter: at, Return: at + 1, DoneBy: at + 2}
	}
	var seen uint64
	for now := 1000 * second; now < 1120*second; now += second / 3 {
		o := Observation{At: now, Process: Process{ID: 1, PID: 1}, Communicator: world}
		for operation(seen+1).Enter < now {
			seen++
		}
		for seq := max(seen, History) - History + 1; seq <= seen; seq++ {
			o.Operations = append(o.Operations, operation(seq))
		}
		o.Issued, o.Done = seen, seen
		observe(t, a, o)
	}
	status := a.Ranks(1120 * second)
	require.Len(t, status, 1)
	require.EqualValues(t, period, status[0].Period)
	require.InDelta(t, 0.7, status[0].Iteration.Seconds(), 0.001)
}
