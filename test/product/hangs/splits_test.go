// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/job"
)

// TestASplitThatWaitsIsTheCauseOfAll: a rank stops before the collective of its half, so that the other half and the
// communicator of all wait, too.
func TestASplitThatWaitsIsTheCauseOfAll(t *testing.T) {
	g := start(t, "4s")
	requireOneCause(g, func() *job.Job { return job.Start(t, g.name, halves...) })
}

// halves are the arguments of such a job.
var halves = []string{"--story", "halves", "--ranks", "4", "--stop", "half"}

func requireOneCause(g *gadget, begin func() *job.Job) {
	g.t.Helper()
	g.mu.Lock()
	g.hasSplits = true
	g.mu.Unlock()
	j := g.begin(begin)
	isOurs := func(h hang) bool { return slices.Contains(j.PIDs, h.Proc.PID) } // others' splits have no names, either
	found := g.first("a verdict", isOurs)
	g.t.Log(found.Text)
	require.Equal(g.t, "dead", found.Reason)
	require.Equal(g.t, 0, found.Rank)
	require.Equal(g.t, j.PIDs[1], found.Proc.PID)
	require.Contains(g.t, found.Text, "rank 0 of 2 is stopped, before AllReduce 41 of communicator 0x")
	require.Contains(g.t, found.Text, "; 2 other communicators wait behind it")
	time.Sleep(3 * time.Second)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range slices.DeleteFunc(slices.Clone(g.hangs), func(h hang) bool { return !isOurs(h) }) {
		require.Equal(g.t, found.SinceNS, h.SinceNS, "another cause: %s", h.Text)
	}
}
