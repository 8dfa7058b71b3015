// SPDX-License-Identifier: Apache-2.0

package lastread

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRowsAreTheLastWhenNothingFollowsThem(t *testing.T) {
	ending := time.Unix(100, 0)
	at := func(d time.Duration) time.Time { return ending.Add(d) }
	asked := at(3 * time.Millisecond)
	for _, c := range []struct {
		name     string
		rows     read
		now      time.Duration
		complete bool
	}{
		{"none yet", read{}, time.Second, false},
		{"from before", read{passed: at(-time.Millisecond)}, time.Second, false},
		{"perhaps a read that was under way", read{passed: at(4 * time.Millisecond)}, quiet, false},
		{"the next are on their way", read{passed: at(4 * time.Millisecond), passing: true}, time.Second, false},
		{"and nothing behind them", read{passed: at(4 * time.Millisecond)}, 4*time.Millisecond + quiet, true},
		{"through before they were waited for", read{passed: at(2 * time.Millisecond)}, 3*time.Millisecond + quiet, true},
		{"which was just now", read{passed: at(time.Millisecond)}, time.Millisecond + quiet, false},
	} {
		i := &instance{ending: ending, reads: map[string]*read{"allocs": &c.rows, "drops": {passed: at(0)}}}
		require.Equal(t, c.complete, i.complete(asked, at(c.now)), c.name)
	}
}
