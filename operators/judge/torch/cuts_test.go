// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The live table is as large as a program's allocations: --torch-fits and --waste together read it
// once in an interval, as each of them alone.
func TestLayoutsAreReadOnceForAllThatIsComputedFromThem(t *testing.T) {
	layout := &lay{[]area{areaOf(100, 20)}, []block{{105 * mib, 110 * mib, 0, owner{stack: 1}}}}
	reads := 0
	c := &cuts{size: 4 << 20, all: func(func(uint64) bool) (map[uint64]*lay, error) {
		reads++
		return map[uint64]*lay{7: layout}, nil
	}}
	interval := func() {
		for range 3 { // pools, and rows
			_, err := c.fits(7)
			require.NoError(t, err)
			_, err = c.fragmentsOf(7)
			require.NoError(t, err)
		}
	}
	interval()
	reads = 0 // what is requested is known from now on
	for n := range 5 {
		c.read = time.Time{}
		interval()
		require.Equal(t, n+1, reads)
	}
	fits, err := c.fits(7)
	require.NoError(t, err)
	require.Equal(t, fitting(layout.areas, layout.blocks, 4<<20), fits)
	apart, err := c.fragmentsOf(7)
	require.NoError(t, err)
	require.Equal(t, map[owner]uint64{{stack: 1}: 15 * mib}, apart)
}
