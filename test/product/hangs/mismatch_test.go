// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestACallThatDiffersIsFoundBehindManyOthers, of which each rank has issued 98 more before it waits.
func TestACallThatDiffersIsFoundBehindManyOthers(t *testing.T) {
	g := start(t, "4s")
	j := g.run("--story", "training", "--buckets", "100", "--differ")
	var found hang
	g.wait("a verdict", func() bool {
		for _, h := range g.hangs {
			if h.Name == g.name {
				found = h
				return true
			}
		}
		return false
	})
	t.Log(found.Text)
	require.Equal(t, "mismatch", found.Reason)
	require.Equal(t, 1, found.Rank)
	require.Equal(t, j.PIDs[1], found.Proc.PID)
	const differs = 40*101 + 3 // a broadcast and 100 buckets in each step
	require.Equal(t, []uint64{differs/16*16 + 1, differs/16*16 + 16}, []uint64{found.FirstSeq, found.Seq})
	require.Regexp(t, `^rank 1 of 3 of communicator .* has issued other collectives than most ranks: the first is one of \d+ to \d+ \(waited `, found.Text)
}
