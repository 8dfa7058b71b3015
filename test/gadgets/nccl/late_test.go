// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// waitLimit is far more than any of this takes; the machine may be busy.
const waitLimit = 2 * time.Minute

// example runs one of examples/collectives and returns its ranks' pids, once all have joined.
func example(t *testing.T, program string, args ...string) (pids []int) {
	t.Helper()
	l := libraries(t)
	cmd := exec.Command("python3", append([]string{"../../../examples/collectives/" + program,
		"--libcuda", l["libcuda"], "--libnccl", l["libnccl"]}, args...)...)
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := subject.Start(t, cmd)
	for len(pids) == 0 {
		if rest, ok := strings.CutPrefix(p.Line(), "ready "); ok {
			for _, field := range strings.Fields(rest) {
				var pid int
				_, err := fmt.Sscan(field, &pid)
				require.NoError(t, err)
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// eventually waits for a state of the communicators, by pid.
func (tr *tracer) eventually(what string, holds func(map[int]nccl.Communicator) bool) map[int]nccl.Communicator {
	tr.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(50 * time.Millisecond) {
		rows := map[int]nccl.Communicator{}
		for _, c := range tr.communicators() {
			rows[int(c.PID)] = c
		}
		if holds(rows) {
			return rows
		}
		if time.Now().After(deadline) {
			require.Fail(tr.t, what, "%+v", rows)
		}
	}
}

// TestLateCommunicatorsAreIdentified: attaching to a running job.
func TestLateCommunicatorsAreIdentified(t *testing.T) {
	pids := example(t, "train.py", "--step-ms", "20")
	tr := start(t, libraries(t), options{})
	rows := tr.eventually("all ranks were seen to call", func(rows map[int]nccl.Communicator) bool {
		return len(rows) == len(pids)
	})
	f, err := os.Open(libraries(t)["libnccl"])
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	library, err := nccl.Inspect(f, st.Size(), nil)
	require.NoError(t, err)
	require.NoError(t, library.Layout())
	var hash uint64
	for rank, pid := range pids {
		c := rows[pid]
		require.True(t, c.Late)
		require.Zero(t, c.Identity)
		require.EqualValues(t, -1, c.Rank)
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		require.NoError(t, err)
		defer memory.Close()
		id, err := library.Identify(memory, c.Handle)
		require.NoError(t, err)
		require.Equal(t, int32(rank), id.Rank)
		require.Equal(t, int32(len(pids)), id.Size)
		require.Equal(t, int32(rank%2), id.Device)
		if rank > 0 {
			require.Equal(t, hash, id.Hash)
		}
		hash = id.Hash
	}
}

// TestStoppedRankIsBehind: while a rank is stopped the others are seen waiting for an
// operation that it has not issued, and continuing when it does.
func TestStoppedRankIsBehind(t *testing.T) {
	tr := start(t, libraries(t), options{})
	pids := example(t, "train.py", "--step-ms", "20")
	tr.eventually("the job runs", func(rows map[int]nccl.Communicator) bool {
		return len(rows) == len(pids) && rows[pids[0]].Collectives > 20
	})
	stopped := pids[1]
	require.NoError(t, syscall.Kill(stopped, syscall.SIGSTOP))
	waits := func(rows map[int]nccl.Communicator, pid int) bool {
		c := rows[pid]
		return c.Newest.Match > rows[stopped].Collectives && c.Newest.Flags&nccl.Done == 0 &&
			c.Newest.ReturnNS != 0 && c.Newest.ReturnNS <= c.PendingCoveredNS && c.PendingNS == c.NowNS
	}
	rows := tr.eventually("the others wait", func(rows map[int]nccl.Communicator) bool {
		return waits(rows, pids[0]) && waits(rows, pids[2])
	})
	require.Equal(t, rows[pids[0]].Identity, rows[stopped].Identity)
	require.Equal(t, int32(1), rows[stopped].Rank)
	require.Equal(t, "world", rows[stopped].Name)
	before := rows[pids[0]].Collectives
	time.Sleep(300 * time.Millisecond) // nothing happens meanwhile
	require.Equal(t, before, tr.eventually("rows", func(map[int]nccl.Communicator) bool { return true })[pids[0]].Collectives)
	require.NoError(t, syscall.Kill(stopped, syscall.SIGCONT))
	tr.eventually("the job goes on", func(rows map[int]nccl.Communicator) bool {
		return rows[pids[0]].DoneCollectives > before && rows[stopped].Collectives > before
	})
}

// TestPipelineSendsAndReceives: the sends of a rank to a peer match the peer's receives.
func TestPipelineSendsAndReceives(t *testing.T) {
	tr := start(t, libraries(t), options{})
	pids := example(t, "pipeline.py", "--steps", "30", "--step-ms", "1")
	tr.eventually("the pipeline has ended", func(rows map[int]nccl.Communicator) bool {
		ended := 0
		for _, c := range rows {
			if c.ExitNS != 0 {
				ended++
			}
		}
		return ended == len(pids)
	})
	counts := map[string]uint64{}
	for _, p := range tr.peers() {
		counts[fmt.Sprint(p.Op, " ", p.Rank, " ", p.Peer)] = p.Issued
	}
	require.Equal(t, map[string]uint64{"Send 0 1": 30, "Recv 1 0": 30, "Send 1 2": 30, "Recv 2 1": 30}, counts)
}
