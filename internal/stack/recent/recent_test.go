// SPDX-License-Identifier: Apache-2.0

package recent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A daemon sees a process each second, for months; what it knows of those that have ended
// must not fill up all the room that there is for those that run.
func TestWhatIsNotUsedIsForgottenInTime(t *testing.T) {
	c := New[int, string](1000)
	at := time.Now()
	c.now = func() time.Time { return at }
	for i := range 1000 {
		at = at.Add(time.Second)
		c.Put(i, "a process that comes and goes")
		_, used := c.Get(0)
		require.True(t, used, "it is asked for each second")
		require.LessOrEqual(t, c.Len(), 2*int(keepUnused/time.Second)+2, "after %d", i)
	}
	for _, i := range []int{1, 500} {
		_, found := c.Get(i)
		require.False(t, found, i)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := New[int, int](10)
	for i := range 1000 {
		c.Put(i, i)
		// Used all the time: never forgotten.
		_, ok := c.Get(0)
		require.True(t, ok)
		require.LessOrEqual(t, c.Len(), 20)
	}
	_, ok := c.Get(500)
	require.False(t, ok)
	v, ok := c.Get(999)
	require.True(t, ok)
	require.Equal(t, 999, v)
}

// What is kept and what was reported as dropped is all there ever was, each once.
func TestWhatIsDroppedIsReportedOnce(t *testing.T) {
	for before := range 12 {
		c := New[int, int](10)
		dropped := map[int]int{}
		c.OnDrop(func(v int) { dropped[v]++ })
		for i := range 1000 {
			c.Put(i, i)
			c.Get(0)
			c.Get(i - before)
		}
		require.NotEmpty(t, dropped)
		for i := range 1000 {
			_, isYoung := c.young[i]
			_, isOld := c.old[i]
			require.Equal(t, map[bool]int{false: 1, true: 0}[isYoung || isOld], dropped[i], "%d, requested again after %d", i, before)
		}
	}
}

// Of values of any size so many bytes are kept as may be, twice.
func TestBytesAreBounded(t *testing.T) {
	c := New[int, string](1000)
	c.LimitBytes(100, func(s string) int { return len(s) })
	for i := range 1000 {
		c.Put(i, "four")
		c.Put(i, "eleven byte") // in its place
		_, ok := c.Get(i - 5)
		require.Equal(t, i >= 5, ok, i)
		require.LessOrEqual(t, c.Len(), 2*(100/11+1))
	}
}
