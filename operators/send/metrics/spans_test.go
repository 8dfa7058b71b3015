// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// The sum over rows stays the same when a row is removed, when a reading misses one, and
// when a span returns.
func TestForgottenSpansStayInTheSums(t *testing.T) {
	process := profile.Process{ID: 7, PID: 70}
	id := func(span, born uint64) profile.RowID {
		return profile.RowID{Process: 7, StackID: 1, Kind: "device", Span: profile.Span(span), Born: born}
	}
	s := newMemorySpans()
	over := false
	read := func(there map[profile.RowID]int64) (sum int64) {
		for id, n := range there {
			row := profile.Row{Process: process, Kind: "device", Values: profile.Values{AllocObjects: n, FreedObjects: n}}
			s.see(id, row)
			sum += n
		}
		for _, r := range s.forgotten(func(profile.Process) bool { return over }) {
			require.Equal(t, process, r.Process)
			require.Equal(t, "device", r.Kind)
			require.Zero(t, r.PeakBytes)
			sum += r.AllocObjects
		}
		return sum
	}
	all := map[profile.RowID]int64{id(0, 0): 10, id(1, 1): 5, id(2, 1): 3}
	require.EqualValues(t, 18, read(all))
	require.EqualValues(t, 18, read(map[profile.RowID]int64{id(0, 0): 10, id(2, 1): 3}), "missed once")
	require.EqualValues(t, 18, read(all))
	for range 3 * missedRows {
		require.EqualValues(t, 18, read(map[profile.RowID]int64{id(0, 0): 10, id(2, 1): 3}))
	}
	require.Len(t, s.rows, 1, "the row is not remembered for ever")
	require.EqualValues(t, 23, read(map[profile.RowID]int64{id(0, 0): 10, id(2, 1): 3, id(1, 9): 5}), "it began again")
	over = true
	require.Zero(t, read(nil))
	require.Empty(t, s.rows)
	require.Empty(t, s.sums)
}
