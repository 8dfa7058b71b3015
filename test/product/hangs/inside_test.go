// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/job"
)

// TestACallThatDoesNotReturnIsNamed, and the rank is the odd one of a dump.
func TestACallThatDoesNotReturnIsNamed(t *testing.T) {
	g := start(t, "4s")
	j := g.run(inside...)
	requireInside(g, j)
	var pids []string
	for _, pid := range j.PIDs {
		pids = append(pids, fmt.Sprint(pid))
	}
	out, err := exec.Command("../../../bin/ig-gpu", append([]string{"dump", "--odd"}, pids...)...).Output()
	require.NoError(t, err)
	require.Regexp(t, `^2 of 3 ranks are at .* \(\w+\.py:\d+\)\. The others are not:\n\nrank 1 at Rank\.never_return \(train\.py:\d+\), in Condition\.wait`, string(out))
	require.NotContains(t, string(out), "process "+pids[0])
}

// inside are the arguments of such a job.
var inside = []string{"--story", "training", "--inside"}

func requireInside(g *gadget, j *job.Job) {
	g.t.Helper()
	found := g.first("the verdict with its line", func(h hang) bool { return h.Reason == "inside" && h.UserLine != "" })
	g.t.Log(found.Text)
	require.Equal(g.t, 1, found.Rank)
	require.Equal(g.t, j.PIDs[1], found.Proc.PID)
	require.Equal(g.t, "AllReduce", found.Operation)
	require.Regexp(g.t, `^rank 1 of 3 has entered AllReduce \d+ of communicator .* and did not return from it \(waited .* by ranks 0, 2\); at Rank\.never_return`, found.Text)
}
