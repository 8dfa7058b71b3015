// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestDDPOfRealPyTorchOverNCCLsOwnCode: two processes train, and one of them is stopped.
func TestDDPOfRealPyTorchOverNCCLsOwnCode(t *testing.T) {
	libraries, root := simulated.HostNCCL(t), simulated.Root()
	if _, err := os.Stat(filepath.Join(root, "build/fixtures/torch/root")); err != nil {
		t.Skip("PyTorch has not been fetched: make test-nccl does it")
	}
	g := start(t, "4s")
	g.mu.Lock()
	g.name = "" // PyTorch gives none to this version
	g.mu.Unlock()
	g.wait("the gadget runs", func() bool { return g.tables > 0 })

	hold := filepath.Join(t.TempDir(), "go")
	cmd := exec.Command(filepath.Join(root, "scripts/pytorch.sh"), filepath.Join(root, "examples/pytorch/parallel.py"),
		"processes", "--steps", "1000000", "--hold", hold)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries, "SIMCUDA_DEVICES=2")
	cmd.Env = append(cmd.Env, simulated.HostNCCLSettings()...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // its ranks end with it
	program := subject.Start(t, cmd)
	var pids []uint32
	for range 2 {
		var said struct{ Ready uint32 }
		require.NoError(t, json.Unmarshal([]byte(program.Line()), &said))
		pids = append(pids, said.Ready)
	}
	require.NoError(t, os.WriteFile(hold, nil, 0o600))
	stopped := uint32(0)
	g.wait("collectives of both ranks", func() bool {
		seen := 0
		for _, r := range g.ranks {
			if slices.Contains(pids, r.Proc.PID) && r.Issued > 100 {
				seen++
				if r.Rank == 1 {
					stopped = r.Proc.PID
				}
			}
		}
		return seen == 2
	})
	require.NoError(t, unix.Kill(int(stopped), unix.SIGSTOP))
	found := g.first("a verdict", func(h hang) bool { return slices.Contains(pids, h.Proc.PID) })
	t.Log(found.Text)
	require.Equal(t, "dead", found.Reason)
	require.Equal(t, 1, found.Rank)
	require.Equal(t, stopped, found.Proc.PID)
	require.Contains(t, found.Text, "rank 1 of 2 is stopped, before ")
	g.wait("the program's line", func() bool {
		n := slices.IndexFunc(g.ranks, func(r rank) bool { return r.Proc.PID == stopped })
		return n >= 0 && strings.HasPrefix(g.ranks[n].Where, "step (parallel.py:")
	})
}
