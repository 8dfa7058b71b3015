// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// ProcFS reads processes from the host's /proc.
type ProcFS string

// clockTick is the unit of times in /proc: USER_HZ is 100 on all architectures
// that CUDA runs on.
const clockTick = time.Second / 100

// Process implements Processes: the pid and the command's name.
func (p ProcFS) Process(pid uint32) profile.Process {
	comm, _ := os.ReadFile(p.file(pid, "comm"))
	return profile.Process{PID: pid, Comm: string(bytes.TrimSpace(comm))}
}

// Start implements Processes.
func (p ProcFS) Start(pid uint32) time.Duration {
	stat, err := os.ReadFile(p.file(pid, "stat"))
	if err != nil {
		return 0
	}
	return startTime(stat)
}

// startTime is field 22 of /proc/PID/stat (proc_pid_stat(5)).
func startTime(stat []byte) time.Duration {
	fields := procmaps.StatFields(stat)
	if len(fields) < 20 {
		return 0
	}
	ticks, err := strconv.ParseUint(string(fields[19]), 10, 53)
	if err != nil {
		return 0
	}
	return time.Duration(ticks) * clockTick
}

// Now implements Processes.
func (ProcFS) Now() time.Duration { return ig.SinceBoot() }

func (p ProcFS) file(pid uint32, name string) string {
	return filepath.Join(string(p), strconv.FormatUint(uint64(pid), 10), name)
}
