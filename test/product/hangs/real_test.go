// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/job"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

// ownCode is a run of ig-gpu, and begins a job with NCCL's own code.
func ownCode(t *testing.T, args ...string) (*gadget, *job.Job) {
	t.Helper()
	libraries := simulated.HostNCCL(t)
	g := start(t, "4s")
	return g, g.begin(func() *job.Job { return job.StartReal(t, libraries, g.name, args...) })
}

// TestAStoppedRankOfNCCLsOwnCode is named until it continues.
func TestAStoppedRankOfNCCLsOwnCode(t *testing.T) {
	for _, c := range []struct{ args, operation string }{
		{"--story training --stop broadcast", "Broadcast"},
		{"--story training --stop broadcast --nonblocking", "Broadcast"},
		{"--story pipeline --stop recv", "Recv"},
	} {
		t.Run(c.args, func(t *testing.T) {
			g, j := ownCode(t, strings.Fields(c.args)...)
			found := g.verdict("")
			t.Log(found.Text)
			require.Equal(t, "dead", found.Reason)
			require.Equal(t, "stopped", found.State)
			require.Equal(t, c.operation, found.Operation)
			require.Equal(t, 1, found.Rank)
			require.Equal(t, j.PIDs[1], found.Proc.PID)
			require.Contains(t, found.Text, "rank 1 of 3 is stopped, before "+c.operation)
			g.wait("the line where it is now", func() bool {
				return len(g.ranks) > 0 && g.ranks[0].Rank == 1 && strings.Contains(g.ranks[0].Stack, "Rank.stop_before (train.py:")
			})
			require.NoError(t, unix.Kill(int(j.PIDs[1]), unix.SIGCONT))
			g.wait("cleared", func() bool {
				last := g.hangs[len(g.hangs)-1]
				return last.Event == "cleared" && last.SinceNS == found.SinceNS
			})
		})
	}
}

func TestACallThatDiffersInNCCLsOwnCode(t *testing.T) {
	requireFarMismatch(ownCode(t, farMismatch...))
}

// TestACommunicatorThatIsNotCreatedByNCCLsOwnCode: two ranks wait in its bootstrap.
func TestACommunicatorThatIsNotCreatedByNCCLsOwnCode(t *testing.T) {
	g, _ := ownCode(t, absent...)
	requireCreating(g)
}

func TestACallOfNCCLsOwnCodeThatDoesNotReturn(t *testing.T) {
	requireInside(ownCode(t, inside...))
}

func TestASplitOfNCCLsOwnCodeThatWaits(t *testing.T) {
	libraries := simulated.HostNCCL(t)
	g := start(t, "4s")
	requireOneCause(g, func() *job.Job { return job.StartReal(t, libraries, g.name, halves...) })
}

// TestHealthyJobsOfNCCLsOwnCode have no verdict, and each rank is known by its number.
func TestHealthyJobsOfNCCLsOwnCode(t *testing.T) {
	g, j := ownCode(t)
	g.wait("collectives", func() bool { return len(g.ranks) == 3 && g.ranks[0].Issued > 20 })
	time.Sleep(10 * time.Second)
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Empty(t, g.hangs)
	for _, r := range g.ranks {
		require.Equal(t, j.PIDs[r.Rank], r.Proc.PID)
		require.Greater(t, r.Issued, uint64(100))
		require.LessOrEqual(t, r.Issued-r.Done, uint64(4), "a step's: %+v", r)
	}
}

// TestAJobOfNCCLsOwnCodeThatIsOlder: its communicators are known by what NCCL keeps in memory.
func TestAJobOfNCCLsOwnCodeThatIsOlder(t *testing.T) {
	j := job.StartReal(t, simulated.HostNCCL(t), "older")
	j.Begin()
	time.Sleep(5 * time.Second) // it is in the middle of its steps
	g := start(t, "4s")
	g.mu.Lock()
	g.name = "" // the library keeps none
	g.mu.Unlock()
	g.wait("collectives of its ranks", func() bool {
		if len(g.ranks) != 3 {
			return false
		}
		for _, r := range g.ranks {
			if r.Rank < 0 || j.PIDs[r.Rank] != r.Proc.PID || r.Issued < 10 { // since ig-gpu attached
				return false
			}
		}
		return true
	})
	require.NoError(t, unix.Kill(int(j.PIDs[1]), unix.SIGSTOP))
	found := g.verdict("")
	t.Log(found.Text)
	require.Equal(t, "dead", found.Reason)
	require.Equal(t, j.PIDs[1], found.Proc.PID)
}

// TestRASOfNCCLsOwnCode: its service, which 2.28.9 and later have in the form that is read, agrees.
func TestRASOfNCCLsOwnCode(t *testing.T) {
	libraries := simulated.HostNCCL(t)
	f, err := os.Open(filepath.Join(libraries, "libnccl.so.2"))
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	library, err := nccl.Inspect(f, st.Size(), nil)
	require.NoError(t, err)
	if library.Version < 22809 {
		t.Skipf("%s has no such service", library)
	}
	for _, c := range []struct{ args, reason string }{
		{"--story training --stop broadcast", "dead"},
		{"--story relay --stall", "missing"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			g := start(t, "4s", "--ras")
			j := g.begin(func() *job.Job { return job.StartReal(t, libraries, g.name, strings.Fields(c.args)...) })
			answer := g.first("RAS", func(h hang) bool { return h.Event == "ras" })
			t.Log(answer.Text)
			require.Equal(t, "agrees", answer.RAS)
			require.Equal(t, c.reason, answer.Reason)
			require.Equal(t, 1, answer.Rank)
			require.Equal(t, j.PIDs[1], answer.Proc.PID)
		})
	}
}
