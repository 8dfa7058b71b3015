// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAllocatorInThePlaceOfThePoolIsSaidOnce(t *testing.T) {
	var q quiet
	require.Empty(t, q.see(map[uint32]uint64{7: 1000}), "no PyTorch was found there")
	q.find(7, "python3")
	q.find(8, "train")
	q.find(9, "idle")
	all := map[uint32]uint64{7: 1000, 8: 1000, 9: quietAfter - 1}
	require.Empty(t, q.see(all), "its pools may be read later")
	q.tell(8)
	lines := q.see(all)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "PyTorch of python3[7] has told of no tensor, and 1000 allocations")
	require.Empty(t, q.see(all), "once")
	all[9]++
	require.Empty(t, q.see(all))
	require.Len(t, q.see(all), 1)

	delete(all, 8) // it ends, and another has its number
	require.Empty(t, q.see(all))
	q.find(8, "other")
	all[8] = quietAfter
	require.Empty(t, q.see(all))
	require.Len(t, q.see(all), 1)
}

// Most processes end without a word, and a daemon runs for months.
func TestQuietProcessesAreNotRememberedForEver(t *testing.T) {
	var q quiet
	for pid := range uint32(3 * maxQuiet) {
		q.find(pid, "python3")
	}
	require.LessOrEqual(t, len(q.found), maxQuiet)
}
