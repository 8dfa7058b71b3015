// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks"
)

// serveRAS is NCCL's RAS service with a status of the test's.
func serveRAS(t *testing.T, status *atomic.Value) string {
	t.Helper()
	return simranks.ServeRAS(t, func(command string) string {
		switch command {
		case "CLIENT PROTOCOL 2":
			return "SERVER PROTOCOL 2\n"
		case "STATUS":
			return status.Load().(string)
		}
		return "OK\n"
	}).String()
}

// TestRASIsCompared: NCCL's own RAS is queried about a verdict, and the comparison is shown.
func TestRASIsCompared(t *testing.T) {
	var status atomic.Value
	t.Setenv("NCCL_RAS_ADDR", serveRAS(t, &status))
	g := start(t, "4s", "--ras")
	j := g.run("--story", "training")
	rank := func(n int, what string) string {
		return fmt.Sprintf(`{"rank": %d, "host": "10.0.0.1", "pid": %d, %s}`, n, j.PIDs[n], what)
	}
	const counted = `"collective_counts": {"AllReduce": 100}`
	says := func(event, ras string) hang {
		t.Helper()
		return g.first(event+" "+ras, func(h hang) bool { return h.Event == event && h.RAS == ras })
	}
	for _, c := range []struct{ ras, missing, ranks, text string }{
		{"agrees", rank(1, `"status": {"unresponsive": true}`), rank(0, counted) + "," + rank(2, counted), "rank 1 (10.0.0.1, pid %d) does not answer"},
		{"disagrees", "", rank(0, counted) + "," + rank(1, counted) + "," + rank(2, counted), "all 3 ranks answer and have issued the same; we say: rank 1 of 3 is stopped"},
	} {
		status.Store(fmt.Sprintf(`{"nccl_version": "2.29.7", "communicators": [{"hash": "0x77", "size": 3, "ranks": [%s], "missing_ranks": [%s]}]}`, c.ranks, c.missing))
		g.wait("all ranks go on", func() bool { return len(g.ranks) == 3 && g.ranks[0].Issued > 20 && g.ranks[0].Verdict == "" })
		g.mu.Lock()
		g.hangs = nil
		g.mu.Unlock()
		require.NoError(t, unix.Kill(int(j.PIDs[1]), unix.SIGSTOP))
		h := says("ras", c.ras)
		t.Log(h.Text)
		require.Equal(t, "dead", h.Reason)
		require.Equal(t, 1, h.Rank)
		if c.missing != "" {
			c.text = fmt.Sprintf(c.text, j.PIDs[1])
		}
		require.Contains(t, h.Text, "NCCL's RAS "+c.ras+" on communicator "+g.name)
		require.Contains(t, h.Text, c.text)
		require.NoError(t, unix.Kill(int(j.PIDs[1]), unix.SIGCONT))
		says("cleared", "")
	}
}
