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

// start writes what /proc has of a process.
func start(t *testing.T, procfs string, pid, parent, group int, environment string) {
	t.Helper()
	dir := filepath.Join(procfs, fmt.Sprint(pid))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	stat := fmt.Sprintf("%d (python3 (a) b) S %d %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n", pid, parent, group, group)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "environ"), []byte(strings.ReplaceAll(environment, " ", "\x00")+"\x00"), 0o600))
}

// TestRanksOfALauncherAreOneJob: torchrun makes each of its ranks a session of its own.
func TestRanksOfALauncherAreOneJob(t *testing.T) {
	procfs := t.TempDir()
	for pid, environment := range map[int]string{
		10: "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 RANK=0", 11: "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 RANK=1",
		12: "MASTER_ADDR=127.0.0.1 MASTER_PORT=29501 RANK=0", 13: "MASTER_ADDR=127.0.0.1 RANK=0",
		20: "PMIX_NAMESPACE=prterun-1 OMPI_COMM_WORLD_RANK=0", 21: "PMIX_NAMESPACE=prterun-1 OMPI_COMM_WORLD_RANK=1",
		30: "SLURM_JOB_ID=7 SLURM_STEP_ID=0", 31: "SLURM_JOB_ID=7 SLURM_STEP_ID=0", 32: "SLURM_JOB_ID=7 SLURM_STEP_ID=1",
	} {
		start(t, procfs, pid, 9, pid, environment)
	}
	start(t, procfs, 40, 9, 39, "A=1")
	start(t, procfs, 41, 9, 39, "A=1")
	job := func(pid uint32) string { return Job(procfs, pid) }
	require.Equal(t, job(10), job(11))
	require.NotEqual(t, job(10), job(12))
	require.Equal(t, "group 13", job(13), "not the whole address")
	require.Equal(t, job(20), job(21))
	require.Equal(t, job(30), job(31))
	require.NotEqual(t, job(30), job(32))
	require.Equal(t, job(40), job(41), "by the process group")
	require.Empty(t, job(99), "it has ended")
}

// TestWorkersAndLaunchersAreNoRanks: each has the rank's libraries, and a worker its environment.
func TestWorkersAndLaunchersAreNoRanks(t *testing.T) {
	procfs := t.TempDir()
	start(t, procfs, 9, 1, 9, "SLURM_PROCID=0 SLURM_NTASKS=2")                // torchrun
	start(t, procfs, 10, 9, 10, "SLURM_PROCID=0 SLURM_NTASKS=2 RANK=0")       // its ranks
	start(t, procfs, 11, 9, 11, "SLURM_PROCID=0 SLURM_NTASKS=2 RANK=1")       //
	start(t, procfs, 12, 10, 10, "SLURM_PROCID=0 SLURM_NTASKS=2 RANK=0")      // loads data for rank 0
	start(t, procfs, 13, 14, 10, "SLURM_PROCID=0 SLURM_NTASKS=2 RANK=0 NEW=") // compiles for it, by way of 14
	start(t, procfs, 14, 10, 10, "")
	require.Equal(t, []uint32{10, 11}, WithoutFamily(procfs, []uint32{9, 10, 11, 12, 13}))

	start(t, procfs, 15, 1, 15, "RANK=0 WORLD_SIZE=2") // one task, in which mp.spawn starts a rank for each GPU
	for pid := 16; pid < 18; pid++ {
		start(t, procfs, pid, 15, 15, "RANK=0 WORLD_SIZE=2")
		thread := filepath.Join(procfs, fmt.Sprint(pid), "task", "1")
		require.NoError(t, os.MkdirAll(thread, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(thread, "comm"), []byte("pt_nccl_watchdg\n"), 0o600))
	}
	require.Equal(t, []uint32{16, 17}, WithoutFamily(procfs, []uint32{15, 16, 17}))

	start(t, procfs, 20, 1, 20, "A=1") // starts processes that learn their rank by other ways
	start(t, procfs, 21, 20, 20, "A=1")
	start(t, procfs, 22, 20, 20, "A=1")
	require.Equal(t, []uint32{20, 21, 22, 99}, WithoutFamily(procfs, []uint32{20, 21, 22, 99}))

	start(t, procfs, 30, 31, 30, "RANK=0") // hostile: each is the parent of the other
	start(t, procfs, 31, 30, 30, "RANK=0")
	require.NotPanics(t, func() { WithoutFamily(procfs, []uint32{30, 31}) })
}
