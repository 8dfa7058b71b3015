// SPDX-License-Identifier: Apache-2.0

package readings

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

func TestLargeTablesPassLessOften(t *testing.T) {
	start := time.Unix(100, 0)
	for rows, want := range map[int][]int{ // the seconds in which readings pass
		0:                 {0, 1, 2, 3, 4, 5, 6, 7},
		rowsPerSecond:     {0, 1, 2, 3, 4, 5, 6, 7},
		rowsPerSecond + 1: {0, 1, 2, 3, 4, 5, 6, 7}, // it is no more than the timer's error
		2 * rowsPerSecond: {0, 2, 4, 6},
		3 * rowsPerSecond: {0, 3, 6},
		4 * rowsPerSecond: {0, 4},
		9 * rowsPerSecond: {0, 5},
	} {
		i, r := &instance{}, &read{}
		var passed []int
		for n := range 8 {
			now := start.Add(time.Duration(n) * time.Second)
			if i.begin(r, rows-1, now) {
				passed = append(passed, n)
				i.end(r, rows, now.Add(100*time.Millisecond))
			}
		}
		require.Equal(t, want, passed, rows)
	}
}

// A small table after a large one passes each time again, and the last reading always passes.
func TestPausesEnd(t *testing.T) {
	start := time.Unix(100, 0)
	i, r := &instance{}, &read{}
	pass := func(after time.Duration, rows int) bool {
		if !i.begin(r, rows, start.Add(after)) {
			return false
		}
		i.end(r, 0, start.Add(after)) // all are filtered out
		return true
	}
	require.True(t, pass(0, 3*rowsPerSecond))
	require.False(t, pass(2*time.Second, 1))
	require.True(t, pass(3*time.Second, 1))
	require.True(t, pass(3*time.Second, 4*rowsPerSecond))
	require.NoError(t, i.PreStop(nil))
	require.True(t, pass(3*time.Second+1, 1))
}
