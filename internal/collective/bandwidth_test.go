// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBandwidthIsThatOfNCCLTests: 1 GB in all, in 100 ms, on 8 ranks.
func TestBandwidthIsThatOfNCCLTests(t *testing.T) {
	const size, share = 1 << 30, 1 << 27
	for _, c := range []struct {
		kind     Kind
		elements uint64
		factor   float64
	}{
		{AllReduce, size, 2 * 7.0 / 8}, {Broadcast, size, 1}, {Reduce, size, 1}, {AllGather, share, 7.0 / 8},
		{ReduceScatter, share, 7.0 / 8}, {AllToAll, share, 7.0 / 8}, {Gather, share, 7.0 / 8}, {Scatter, share, 7.0 / 8},
		{Send, size, 1}, {Recv, size, 1},
	} {
		alg, bus := Bandwidth(c.kind, 8, c.elements, 100*time.Millisecond)
		require.InDelta(t, size*10, alg, 1, c.kind)
		require.InDelta(t, size*10*c.factor, bus, 1, c.kind)
	}
	alg, bus := Bandwidth(AllReduce, 0, size, time.Second)
	require.Positive(t, alg)
	require.Zero(t, bus)
	alg, bus = Bandwidth(AllGather, 8, size, 0)
	require.Zero(t, alg+bus)
}
