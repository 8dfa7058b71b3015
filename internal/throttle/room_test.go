// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLastQuarterIsForThoseWithLess(t *testing.T) {
	table := map[int]string{}
	fill := func(who string) (n int) {
		for HasRoomIn(table, 16, func(_ int, of string) bool { return of == who }) {
			table[len(table)] = who
			n++
		}
		return n
	}
	require.Equal(t, 12, fill("first"))
	require.Equal(t, 4, fill("second"))
	require.Zero(t, fill("third"))

	require.True(t, HasRoom(11, 16, func() int { t.Error("counted where it makes no difference"); return 0 }))
	require.True(t, HasRoom(2, 3, nil), "too few for a quarter")
	require.False(t, HasRoom(3, 3, nil))
}
