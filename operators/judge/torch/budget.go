// SPDX-License-Identifier: Apache-2.0

package torch

import "math"

const (
	// budgetPercent of a core is what the stacks of blocks may take. What the rest
	// costs, 0.2 µs in the kernel for each report (make bench), cannot be chosen.
	budgetPercent = 1
	percentNS     = 1e9 / 100 // per second
	// firstCost of a block with its stack, in nanoseconds: before one was measured.
	firstCost = 10_000
	// fewest blocks a second are followed whatever they cost, so that there is something
	// to see, and to measure by.
	fewest = 200
	// measured: how many blocks it takes to know what one costs.
	measured = 50
	// hysteresis: all are followed again below this part of what the budget allows.
	hysteresis = 0.8
	// mostMean is SAMPLING_MOST_BYTES of bpf/torch/sampling.h.
	mostMean = 1 << 27
)

// totals are the sums of all pools since attach, and the cost of following
// part of it.
type totals struct{ blocks, bytes, followed, followedNS uint64 }

// less reports whether some sum is smaller than that of `last`.
func (t totals) less(last totals) bool {
	return t.blocks < last.blocks || t.bytes < last.bytes || t.followed < last.followed || t.followedNS < last.followedNS
}

// blockBudget chooses the mean distance in bytes between two that are sampled, 0 for all
// blocks, so that about as many are followed each second as the budget allows: a block
// of s bytes is followed with a probability of at most s/mean.
type blockBudget struct {
	last    totals
	started bool
	cost    float64 // nanoseconds of a block that is followed; 0: not known yet
	mean    uint64
	// percent of a core.
	percent float64
	// most is the largest mean so far, which the error of a sum goes by.
	most uint64
}

// see takes the totals of a moment, some seconds after those before, and returns the
// mean from now on.
func (b *blockBudget) see(now totals, seconds float64) uint64 {
	last, started := b.last, b.started
	b.last, b.started = now, true
	// Pools of ended processes age out of the kernel's map: the sums can fall.
	if !started || seconds <= 0 || now.less(last) {
		return b.mean
	}
	b.learn(float64(now.followed-last.followed), float64(now.followedNS-last.followedNS))
	rate, allowed := float64(now.blocks-last.blocks)/seconds, b.allowed()
	limit := allowed
	if b.mean > 0 {
		limit *= hysteresis
	}
	if rate <= limit {
		b.mean = 0
		return 0
	}
	b.set(uint64(math.Ceil(float64(now.bytes-last.bytes) / seconds / allowed)))
	return b.mean
}

// learn takes part of what is measured now, since the next second is of other stacks.
func (b *blockBudget) learn(blocks, ns float64) {
	switch {
	case blocks < measured:
	case b.cost == 0:
		b.cost = ns / blocks
	default:
		b.cost += (ns/blocks - b.cost) / 4
	}
}

// allowed is how many blocks a second may be followed.
func (b *blockBudget) allowed() float64 {
	cost := b.cost
	if cost == 0 {
		cost = firstCost
	}
	return max(b.percent*percentNS/max(cost, 1), fewest)
}

func (b *blockBudget) set(mean uint64) {
	b.mean = min(max(mean, 1), mostMean)
	b.most = max(b.most, b.mean)
}

// errorOf is two standard deviations of a sum of bytes that was estimated: the variance
// of a sum over blocks of s bytes is Σ s² (1 − p)/p, and with p = 1 − e^(−s/m) that is
// less than m Σ s. 0: the sum is exact.
func (b *blockBudget) errorOf(bytes uint64) uint64 {
	return uint64(2 * math.Sqrt(float64(bytes)*float64(b.most)))
}
