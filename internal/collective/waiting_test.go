// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestShareOfTheTimeThatARankWaits: in steps of 100 ms with two collectives one after the
// other, rank 2 computes for 40 ms longer than rank 0, and rank 1 for 10 ms.
func TestShareOfTheTimeThatARankWaits(t *testing.T) {
	a := analyzer(t)
	const ms = Time(time.Millisecond)
	late := []Time{0, 10 * ms, 40 * ms}
	now := 1000 * second
	shares := func() (out []float64) {
		for _, s := range a.Ranks(now) {
			out = append(out, s.WaitShare)
		}
		return out
	}
	step := uint64(0)
	run := func(steps int, late []Time) {
		for range steps {
			step++
			for n := range 3 {
				o := Observation{At: now, Process: Process{ID: uint64(n + 1)}, Communicator: world, Rank: n, Issued: 2 * step, Done: 2 * step, State: Running}
				begun := now - 100*ms + late[n]
				// The second one is waited for once all ranks have arrived at
				// the first.
				for i, enter := range []Time{begun, now - 100*ms + 40*ms + 1} {
					o.Operations = append(o.Operations, Operation{Seq: 2*step - 1 + uint64(i), Kind: AllReduce, Peer: None, Enter: enter, Return: enter + 1, DoneBy: enter + 2})
				}
				observe(t, a, o)
			}
			now += 100 * ms
		}
	}
	observe(t, a, Observation{At: now, Process: Process{ID: 1}, Communicator: world, Rank: 0, Issued: 0})
	require.Equal(t, []float64{-1}, shares(), "two of three are not seen")
	run(100, late)
	got := shares()
	require.InDelta(t, 0.4, got[0], 0.01)
	require.InDelta(t, 0.3, got[1], 0.01)
	require.InDelta(t, 0, got[2], 0.01)
	// After about a minute only new operations count.
	run(700, []Time{20 * ms, 40 * ms, 40 * ms})
	got = shares()
	require.InDelta(t, 0.2, got[0], 0.01)
	require.InDelta(t, 0, got[1], 0.01)
}
