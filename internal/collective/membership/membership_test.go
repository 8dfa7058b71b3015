// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAProcessThatOnlyLoadedNCCLIsNoRank: a server with PyTorch has it in memory, and no peers.
func TestAProcessThatOnlyLoadedNCCLIsNoRank(t *testing.T) {
	for name, c := range map[string]struct {
		environment, threads string
		is                   bool
	}{
		"PyTorch on one GPU":                {"HOME=/root", "python3,pt_autograd_0", false},
		"one task of Slurm":                 {"SLURM_PROCID=0 SLURM_NTASKS=1", "python3", false},
		"torchrun with one process":         {"RANK=0 WORLD_SIZE=1", "python3,pt_nccl_watchdg,NCCL Service  0", false},
		"torchrun with eight":               {"RANK=0 WORLD_SIZE=8", "python3", true},
		"Open MPI":                          {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", "python3", true},
		"a rank without a size":             {"RANK=2", "python3", true},
		"workers of one task of Slurm":      {"SLURM_PROCID=0 SLURM_NTASKS=1", "python3,NCCL Service  0", true},
		"workers of a server":               {"HOME=/root", "python3,pt_nccl_heartbt", true},
		"a size that is none":               {"WORLD_SIZE=many", "python3", false},
		"a thread with a name that is near": {"HOME=/root", "NCCLX,xNCCL Service", false},
	} {
		t.Run(name, func(t *testing.T) {
			procfs := t.TempDir()
			process := filepath.Join(procfs, "7")
			for n, comm := range strings.Split(c.threads, ",") {
				thread := filepath.Join(process, "task", fmt.Sprint(7+n))
				require.NoError(t, os.MkdirAll(thread, 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(thread, "comm"), []byte(comm+"\n"), 0o600))
			}
			require.NoError(t, os.WriteFile(filepath.Join(process, "environ"), []byte(strings.ReplaceAll(c.environment, " ", "\x00")+"\x00"), 0o600))
			require.Equal(t, c.is, IsRank(procfs, 7))
		})
	}
	require.False(t, IsRank(t.TempDir(), 7), "it has ended")
}
