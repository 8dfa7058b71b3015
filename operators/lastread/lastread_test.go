// SPDX-License-Identifier: Apache-2.0

package lastread

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRowsAreTheLastWhenNothingFollowsThem(t *testing.T) {
	asked := time.Unix(100, 0)
	at := func(d time.Duration) time.Time { return asked.Add(d) }
	for _, c := range []struct {
		name     string
		rows     read
		now      time.Duration
		complete bool
	}{
		{"none yet", read{}, time.Second, false},
		{"from before", read{passed: at(-time.Millisecond)}, time.Second, false},
		{"perhaps a read that was under way", read{passed: at(time.Millisecond)}, quiet, false},
		{"the next are on their way", read{passed: at(time.Millisecond), passing: true}, time.Second, false},
		{"and nothing behind them", read{passed: at(time.Millisecond)}, time.Millisecond + quiet, true},
	} {
		i := &instance{reads: map[string]*read{"allocs": &c.rows, "drops": {passed: at(0)}}}
		require.Equal(t, c.complete, i.complete(asked, at(c.now)), c.name)
	}
}
