// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAJobWhoseCommunicatorIsNotCreatedIsReported: one rank does not make it.
func TestAJobWhoseCommunicatorIsNotCreatedIsReported(t *testing.T) {
	g := start(t, "4s")
	g.run("--story", "training", "--absent")
	g.wait("the verdict", func() bool { return len(g.hangs) > 0 })
	found := g.hangs[0]
	t.Log(found.Text)
	require.Equal(t, "creating", found.Reason)
	require.Equal(t, "0 2", found.Waiting)
	require.Equal(t, -1, found.Rank)
	require.Regexp(t, `^ranks 0, 2 of 3 have been creating communicator .*\(0x[0-9a-f]+\) for 3\ds; rank 1 has not called, or is on another node: it may still load, or hang$`, found.Text)
}
