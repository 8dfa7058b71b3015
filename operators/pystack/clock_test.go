// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPeriodsKeepTheFrequency: over many epochs there are as many samples as asked
// for, and no period is favoured.
func TestPeriodsKeepTheFrequency(t *testing.T) {
	for _, frequency := range []int{1, 10, 99, 10000} {
		c := &clock{frequency: frequency, epoch: epochOf(frequency)}
		const epochs = 20000
		samples := 0
		shortest, longest := time.Hour, time.Duration(0)
		for range epochs {
			p := c.period()
			shortest, longest = min(shortest, p), max(longest, p)
			samples += int(c.epoch / p) // a new epoch starts the timer anew
		}
		rate := float64(samples) / epochs / c.epoch.Seconds()
		if math.Abs(rate/float64(frequency)-1) > 0.01 {
			t.Errorf("%d Hz: %.2f samples per second", frequency, rate)
		}
		if longest < shortest*3/2 {
			t.Errorf("%d Hz: periods from %v to %v", frequency, shortest, longest)
		}
	}
}

func TestOnlineCPUs(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-2,5,7-8": {0, 1, 2, 5, 7, 8}} {
		got, err := parseCPUs(list)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, list := range []string{"", "a", "1-", "-1", "0-99999999999"} {
		_, err := parseCPUs(list)
		require.Error(t, err, list)
	}
	cpus, err := onlineCPUs("/sys")
	require.NoError(t, err)
	require.NotEmpty(t, cpus)
}
