// SPDX-License-Identifier: Apache-2.0

package gpuclock

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const wall = int64(1_790_000_000_000_000_000)

// lot makes n launches from a time on, whose kernels begin 5 µs to 1 ms later and are
// reported some time after that; offset is by how much CUPTI's clock is behind boot time.
func lot(rng *rand.Rand, from uint64, n int, offset int64) (all []Seen) {
	for range n {
		from += rng.Uint64N(2_000_000)
		start := from + 5_000 + rng.Uint64N(1_000_000)
		end := start + rng.Uint64N(3_000_000)
		all = append(all, Seen{
			Start: uint64(int64(start) - offset), End: uint64(int64(end) - offset),
			Launch: from, Reported: end + 1_000_000 + rng.Uint64N(500_000_000),
		})
	}
	return all
}

// TestWallTimeIsRecognised, exactly, also when it is set between two lots, and slewed.
func TestWallTimeIsRecognised(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c Clock
	for n, now := range []int64{wall, wall, wall + 3600_000_000_000, wall + 3600_000_050_000} {
		offset, source := c.Offset(lot(rng, uint64(n+1)*1e12, 50, -now), now)
		require.Equal(t, Realtime, source)
		require.InDelta(t, -now, offset, 100_000)
		if n < 2 {
			require.Equal(t, -now, offset)
		}
	}
}

// TestAnotherClockIsEstimated: no kernel begins before its launch or ends after it was
// reported, and the error is the shortest launch latency.
func TestAnotherClockIsEstimated(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var c Clock
		strange := rng.Int64N(1 << 50)
		for n := range uint64(3) {
			all := lot(rng, (n+1)*1e12, 200, strange)
			offset, source := c.Offset(all, wall)
			require.Equal(t, Unknown, source)
			require.InDelta(t, strange, offset, 100_000)
			for _, s := range all {
				require.GreaterOrEqual(t, int64(s.Start)+offset, int64(s.Launch))
				require.LessOrEqual(t, int64(s.End)+offset, int64(s.Reported))
			}
		}
	}
}

func TestBootTimeIsRecognised(t *testing.T) {
	var c Clock
	offset, source := c.Offset(lot(rand.New(rand.NewPCG(7, 7)), 1e12, 20, 0), wall)
	require.Equal(t, Boottime, source)
	require.Zero(t, offset)
}

// TestWithoutALaunch the end is all that is known.
func TestWithoutALaunch(t *testing.T) {
	var c Clock
	all := []Seen{{Start: 1000, End: 2000, Reported: 5_000_000_000}}
	offset, source := c.Offset(all, wall)
	require.Equal(t, Boottime, source, "nothing speaks against it")
	require.Zero(t, offset)
	all[0].Start, all[0].End = uint64(wall)+4e9, uint64(wall)+4e9+1000
	c = Clock{}
	offset, source = c.Offset(all, wall)
	require.Equal(t, Realtime, source)
	require.Equal(t, -wall, offset)
	all[0].Start, all[0].End = 3e18, 3e18+1000
	c = Clock{}
	offset, source = c.Offset(all, wall)
	require.Equal(t, Unknown, source)
	require.EqualValues(t, 5_000_000_000, 3e18+1000+offset)
}
