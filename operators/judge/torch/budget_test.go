// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// unmeasured is how many blocks a second are followed before one was measured.
const (
	budgetNS   = budgetPercent * percentNS
	unmeasured = budgetNS / firstCost
)

func TestFewBlocksAreAllFollowed(t *testing.T) {
	b := blockBudget{percent: budgetPercent}
	require.Zero(t, b.see(totals{blocks: 1 << 40, bytes: 1 << 50}, 1), "what was before the first look has no rate")
	require.Zero(t, b.see(totals{blocks: 1<<40 + unmeasured, bytes: 1<<50 + 1<<30}, 1))
	require.Zero(t, b.errorOf(1<<30))
}

func TestManyBlocksAreSampledDownToTheBudget(t *testing.T) {
	b := blockBudget{percent: budgetPercent}
	b.see(totals{}, 1)
	mean := b.see(totals{blocks: 50 * unmeasured, bytes: 50 * unmeasured << 20}, 1)
	require.EqualValues(t, 50<<20, mean, "a fiftieth of blocks of 1 MiB")
	// p = 1 − e^(−s/m) is less than s/m: never more than the budget.
	require.LessOrEqual(t, 50*unmeasured*(1-math.Exp(-float64(1<<20)/float64(mean))), float64(unmeasured))

	now := totals{blocks: 51*unmeasured - unmeasured/10, bytes: 51 * unmeasured << 20}
	require.NotZero(t, b.see(now, 1), "between the two limits it stays sampled")
	now.blocks += unmeasured / 2
	require.Zero(t, b.see(now, 1))
	require.NotZero(t, b.errorOf(1<<30), "what was sampled then may still be in use")
}

// Whatever a stack costs, the budget is kept, and used.
func TestWhatIsMeasuredDecidesHowManyAreFollowed(t *testing.T) {
	const rate, size = 100_000, 1 << 18
	for _, cost := range []float64{500, 5_000, 50_000} {
		b := blockBudget{percent: budgetPercent}
		var now totals
		b.see(now, 1)
		followed := 0.0
		for range 40 {
			followed = rate
			if b.mean > 0 {
				followed *= 1 - math.Exp(-size/float64(b.mean))
			}
			now.blocks += rate
			now.bytes += rate * size
			now.followed += uint64(followed)
			now.followedNS += uint64(followed * cost)
			b.see(now, 1)
		}
		require.LessOrEqual(t, followed*cost, 1.01*budgetNS, "%v ns a block", cost)
		require.GreaterOrEqual(t, followed*cost, 0.8*budgetNS, "%v ns a block", cost)
	}
}

// A block that costs more than the budget allows for `fewest` is followed all the same.
func TestSomeAreFollowedWhateverTheyCost(t *testing.T) {
	b := blockBudget{cost: 1e9, percent: budgetPercent}
	require.EqualValues(t, fewest, b.allowed())
}

func TestSumsThatFallChangeNothing(t *testing.T) {
	b := blockBudget{percent: budgetPercent}
	b.see(totals{}, 1)
	mean := b.see(totals{blocks: 100_000, bytes: 1 << 40}, 1)
	require.NotZero(t, mean)
	require.Equal(t, mean, b.see(totals{blocks: 10, bytes: 10}, 1))
	require.Equal(t, mean, b.see(totals{blocks: 10, bytes: 10}, 0))
}

func TestTheMeanHasTheProgramsLimit(t *testing.T) {
	b := blockBudget{percent: budgetPercent}
	b.see(totals{}, 1)
	require.EqualValues(t, mostMean, b.see(totals{blocks: 1 << 20, bytes: 1 << 60}, 1))
}

// Two standard deviations, by simulation of what bpf/torch/sampling.h does.
func TestErrorCoversTheEstimates(t *testing.T) {
	const mean, runs = 1 << 20, 300
	b := blockBudget{most: mean}
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
