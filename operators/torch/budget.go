// SPDX-License-Identifier: Apache-2.0

package torch

import "math"

const (
	// exactBlocks is how many blocks a second are followed one and all. A block
	// with a stack of 40 Python frames costs 5 µs in the kernel, one that is not
	// followed 0.2 µs (make bench): at 50,000 blocks a second these are 2.5 % and
	// 2 % of a core.
	exactBlocks = 5000
	// hysteresis: all are followed again below this part of it.
	hysteresis = 0.8
	// mostMean is SAMPLING_MOST_BYTES of bpf/torch_sampling.h.
	mostMean = 1 << 27
)

// totals are what all pools have handed out since attach.
type totals struct{ blocks, bytes uint64 }

// budget chooses the mean distance in bytes between two that are sampled, 0 for all
// blocks, so that about exactBlocks are followed each second: a block of s bytes is
// followed with a probability of at most s/mean.
type budget struct {
	last    totals
	started bool
	mean    uint64
	// most is the largest mean so far, which the error of a sum goes by.
	most uint64
}

// see takes the totals of a moment, some seconds after those before, and returns the
// mean from now on.
func (b *budget) see(now totals, seconds float64) uint64 {
	last, started := b.last, b.started
	b.last, b.started = now, true
	// Pools of ended processes age out of the kernel's map: the sums can fall.
	if !started || seconds <= 0 || now.blocks < last.blocks || now.bytes < last.bytes {
		return b.mean
	}
	rate := float64(now.blocks-last.blocks) / seconds
	limit := float64(exactBlocks)
	if b.mean > 0 {
		limit *= hysteresis
	}
	if rate <= limit {
		b.mean = 0
		return 0
	}
	b.set(uint64(math.Ceil(float64(now.bytes-last.bytes) / seconds / exactBlocks)))
	return b.mean
}

func (b *budget) set(mean uint64) {
	b.mean = min(max(mean, 1), mostMean)
	b.most = max(b.most, b.mean)
}

// errorOf is two standard deviations of a sum of bytes that was estimated: the variance
// of a sum over blocks of s bytes is Σ s² (1 − p)/p, and with p = 1 − e^(−s/m) that is
// less than m Σ s. 0: the sum is exact.
func (b *budget) errorOf(bytes uint64) uint64 {
	return uint64(2 * math.Sqrt(float64(bytes)*float64(b.most)))
}
