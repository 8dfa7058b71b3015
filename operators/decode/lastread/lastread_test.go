// SPDX-License-Identifier: Apache-2.0

package lastread

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRowsAreTheLastIfNothingFollows(t *testing.T) {
	ending := time.Unix(100, 0)
	at := func(d time.Duration) time.Time { return ending.Add(d) }
	for _, c := range []struct {
		name  string
		rows  read
		turns int // until they are the last; 0: never
	}{
		{"none yet", read{}, 0},
		{"from before", read{passed: at(-time.Millisecond)}, 0},
		{"the next are on their way", read{passed: at(4 * time.Millisecond), passing: true}, 0},
		{"nothing behind them", read{passed: at(4 * time.Millisecond)}, quiet},
		{"nor for some turns before", read{passed: at(time.Millisecond), quiet: 100}, quiet - 100},
	} {
		i := &instance{ending: ending, reads: map[string]*read{"allocs": &c.rows, "drops": {passed: at(0), quiet: quiet}}}
		turns := 0
		for n := 1; n <= 2*quiet && turns == 0; n++ {
			if i.complete() {
				turns = n
			}
		}
		require.Equal(t, c.turns, turns, c.name)
	}
}
