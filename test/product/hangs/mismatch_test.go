// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/job"
)

// TestACallThatDiffersIsFoundBehindManyOthers, of which each rank has issued 98 more before it waits.
func TestACallThatDiffersIsFoundBehindManyOthers(t *testing.T) {
	g := start(t, "4s")
	requireFarMismatch(g, g.run(farMismatch...))
}

// farMismatch are the arguments of such a job.
var farMismatch = []string{"--story", "training", "--buckets", "100", "--differ"}

func requireFarMismatch(g *gadget, j *job.Job) {
	g.t.Helper()
	found := g.verdict("")
	g.t.Log(found.Text)
	require.Equal(g.t, "mismatch", found.Reason)
	require.Equal(g.t, 1, found.Rank)
	require.Equal(g.t, j.PIDs[1], found.Proc.PID)
	const differs = 40*101 + 3 // a broadcast and 100 buckets in each step
	require.Equal(g.t, []uint64{differs/16*16 + 1, differs/16*16 + 16}, []uint64{found.FirstSeq, found.Seq})
	require.Regexp(g.t, `^rank 1 of 3 of communicator .* has issued other collectives than most ranks: the first is one of \d+ to \d+ \(waited `, found.Text)
}
