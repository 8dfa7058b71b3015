// SPDX-License-Identifier: Apache-2.0

// Package membership recognises the ranks of a job, before they have called anything,
// by their environment and the names of their threads.
package membership

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
)

// maxThreads bounds how many threads of a process are read.
const maxThreads = 4096

// worldSizes are the variables in which launchers write how many processes they have started:
// torchrun, Open MPI, MPICH and Slurm.
var worldSizes = []string{"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}

// ranks are those in which they write which one a process is.
var ranks = []string{"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}

// IsRank reports whether a process that has loaded NCCL takes part in collectives with others,
// as far as that can be seen without a call: most that import PyTorch have loaded it and never
// call it. Evidence is PyTorch's own word, a thread that serves a communicator, or a launcher
// that has started several.
func IsRank(procfs string, pid uint32) bool {
	environment, err := memory.ReadEnvironment(procfs, pid, memory.MaxBytes)
	if err != nil {
		return false // it has ended, or hangs
	}
	most := 0
	for n, name := range worldSizes {
		for _, value := range environment.Values(name) {
			size, err := strconv.Atoi(value)
			if err != nil {
				continue
			}
			if n == 0 && size == 1 {
				return false // communicators of this one process alone
			}
			most = max(most, size)
		}
	}
	return most > 1 || most == 0 && rankIn(environment) >= 0 || hasNCCLThread(procfs, pid)
}

// hasNCCLThread reports whether a thread has a name that NCCL or PyTorch's process group gives:
// "NCCL Service %2d", "NCCL Progress%2d" and others of libnccl 2.22 and 2.29, which a communicator
// has from its creation on; "pt_nccl_watchdg" and "pt_nccl_heartbt" of libtorch_cuda 2.6.
func hasNCCLThread(procfs string, pid uint32) bool {
	tasks, err := os.Open(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "task"))
	if err != nil {
		return false
	}
	defer tasks.Close()
	names, _ := tasks.Readdirnames(maxThreads)
	for _, tid := range names {
		comm, err := os.ReadFile(filepath.Join(tasks.Name(), tid, "comm"))
		if err == nil && (strings.HasPrefix(string(comm), "NCCL ") || strings.HasPrefix(string(comm), "pt_nccl_")) {
			return true
		}
	}
	return false
}

// Rank is that in the environment that a process was started with, as torchrun,
// Open MPI and Slurm write it; -1: there is none.
func Rank(procfs string, pid uint32) int {
	environment, err := memory.ReadEnvironment(procfs, pid, memory.MaxBytes)
	if err != nil {
		return -1
	}
	return rankIn(environment)
}

func rankIn(environment memory.Environment) int {
	for _, name := range ranks {
		for _, value := range environment.Values(name) {
			if n, err := strconv.ParseInt(value, 10, 32); err == nil && n >= 0 {
				return int(n)
			}
		}
	}
	return -1
}
