// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFewBlocksAreAllFollowed(t *testing.T) {
	var b budget
	require.Zero(t, b.see(totals{1 << 40, 1 << 50}, 1), "what was before the first look has no rate")
	require.Zero(t, b.see(totals{1<<40 + exactBlocks, 1<<50 + 1<<30}, 1))
	require.Zero(t, b.errorOf(1<<30))
}

func TestManyBlocksAreSampledDownToTheBudget(t *testing.T) {
	var b budget
	b.see(totals{}, 1)
	mean := b.see(totals{50_000, 50_000 << 20}, 1)
	require.EqualValues(t, 10<<20, mean, "a tenth of blocks of 1 MiB")
	// p = 1 − e^(−s/m) is less than s/m: never more than the budget.
	require.LessOrEqual(t, 50_000*(1-math.Exp(-float64(1<<20)/float64(mean))), float64(exactBlocks))

	now := totals{50_000 + 4500, 51_000 << 20}
	require.NotZero(t, b.see(now, 1), "between the two limits it stays sampled")
	now.blocks += 3000
	require.Zero(t, b.see(now, 1))
	require.NotZero(t, b.errorOf(1<<30), "what was sampled then may still be in use")
}

func TestSumsThatFallChangeNothing(t *testing.T) {
	var b budget
	b.see(totals{}, 1)
	mean := b.see(totals{100_000, 1 << 40}, 1)
	require.Equal(t, mean, b.see(totals{10, 10}, 1))
	require.Equal(t, mean, b.see(totals{10, 10}, 0))
}

func TestTheMeanHasTheProgramsLimit(t *testing.T) {
	var b budget
	b.see(totals{}, 1)
	require.EqualValues(t, mostMean, b.see(totals{1 << 20, 1 << 60}, 1))
}

// Two standard deviations, by simulation of what bpf/torch_sampling.h does.
func TestErrorCoversTheEstimates(t *testing.T) {
	const mean, runs = 1 << 20, 300
	b := budget{most: mean}
	random := newRandom(7)
	inside := 0
	for range runs {
		var truth, estimate float64
		for range 400 {
			size := math.Exp2(9 + 14*random())
			truth += size
			if p := 1 - math.Exp(-size/mean); random() < p {
				estimate += size / p
			}
		}
		if math.Abs(estimate-truth) <= float64(b.errorOf(uint64(truth))) {
			inside++
		}
	}
	require.GreaterOrEqual(t, inside, runs*93/100, "95.4 %% are expected at least")
}

func TestPoolsOfAnotherVersionAreRefused(t *testing.T) {
	_, err := decodePool(make([]byte, 8))
	require.ErrorContains(t, err, "the gadget is of another version")
}

func newRandom(seed uint64) func() float64 {
	return func() float64 {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return float64(seed>>11) / (1 << 53)
	}
}
