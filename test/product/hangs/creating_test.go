// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAJobWhoseCommunicatorIsNotCreatedIsReported: one rank does not make it.
func TestAJobWhoseCommunicatorIsNotCreatedIsReported(t *testing.T) {
	g := start(t, "4s")
	g.run(absent...)
	requireCreating(g)
}

// absent are the arguments of such a job.
var absent = []string{"--story", "training", "--absent"}

func requireCreating(g *gadget) {
	g.t.Helper()
	found := g.verdict("")
	g.t.Log(found.Text)
	require.Equal(g.t, "creating", found.Reason)
	require.Equal(g.t, "0 2", found.Waiting)
	require.Equal(g.t, -1, found.Rank)
	require.Regexp(g.t, `^ranks 0, 2 of 3 have been creating communicator .*\(0x[0-9a-f]+\) for 3\ds; rank 1 has not called, or is on another node: it may still load, or hang$`, found.Text)
}
