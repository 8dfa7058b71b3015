// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"math"
	"testing"
	"time"
)

// TestPeriodsKeepTheFrequency: over many epochs there are as many samples as requested,
// and no period is favoured.
func TestPeriodsKeepTheFrequency(t *testing.T) {
	for _, frequency := range []int{1, 10, 99, 10000} {
		c := &clock{frequency: frequency, epoch: epochOf(frequency, 2)}
		const epochs = 100000
		samples, elapsed := 0, time.Duration(0)
		shortest, longest := time.Hour, time.Duration(0)
		for range epochs {
			p := c.period()
			shortest, longest = min(shortest, p), max(longest, p)
			length := c.length()
			elapsed += length
			samples += int(length / p) // a new epoch restarts the timer
		}
		rate := float64(samples) / elapsed.Seconds()
		if math.Abs(rate/float64(frequency)-1) > 0.02 {
			t.Errorf("%d Hz: %.2f samples per second", frequency, rate)
		}
		if longest < 2*shortest {
			t.Errorf("%d Hz: periods from %v to %v", frequency, shortest, longest)
		}
	}
}

// TestEpochsAreFew: on a large machine, too, new periods are few.
func TestEpochsAreFew(t *testing.T) {
	for _, cpus := range []int{1, 64, 512} {
		if n := float64(cpus) / epochOf(10000, cpus).Seconds(); n > 201 {
			t.Errorf("%d CPUs: %.0f new periods per second", cpus, n)
		}
	}
}
