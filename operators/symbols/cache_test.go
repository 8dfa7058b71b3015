// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A daemon sees a process each second, for months; what it knows of those that have ended
// must not fill up all the room that there is for those that run.
func TestWhatIsNotUsedIsForgottenInTime(t *testing.T) {
	c := newCache[int, string](1000)
	at := time.Now()
	c.now = func() time.Time { return at }
	for i := range 1000 {
		at = at.Add(time.Second)
		c.put(i, "a process that comes and goes")
		_, used := c.get(0)
		require.True(t, used, "it is asked for each second")
		require.LessOrEqual(t, len(c.young)+len(c.old), 2*int(keepUnused/time.Second)+2, "after %d", i)
	}
	for _, i := range []int{1, 500} {
		_, found := c.get(i)
		require.False(t, found, i)
	}
}
