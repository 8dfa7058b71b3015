// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Dumper reads where all threads of Python in processes are. It may take a second, and is
// called by one goroutine at a time. image is that of the gadget that asks.
type Dumper func(ctx context.Context, image string, pids []uint32) (map[Thread]Trace, error)

// Thread is one of a process.
type Thread struct{ PID, TID uint32 }

// look reads what a thread does now, and when its process started: from
// PROCFS/PID/task/TID/stat (proc(5)) and wchan. ok is false if nothing is
// known; a process that is not there is Gone.
func look(procfs string, pid, tid uint32) (state collective.State, wchan string, started uint64, ok bool) {
	process := filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10))
	state, started, err := readStat(filepath.Join(process, "stat"))
	if err != nil {
		return collective.Gone, "", 0, errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	thread := filepath.Join(process, "task", strconv.FormatUint(uint64(tid), 10))
	// The first thread may have ended, or sleep, while the one that calls NCCL runs.
	if s, _, err := readStat(filepath.Join(thread, "stat")); err == nil {
		state = s
	}
	if b, err := os.ReadFile(filepath.Join(thread, "wchan")); err == nil {
		if wchan = strings.TrimSpace(string(b)); wchan == "0" {
			wchan = ""
		}
	}
	return state, wchan, started, true
}

// readStat reads the third field, the state, and the 22nd, the start in clock ticks
// since boot. The second is the command in brackets, which may hold anything.
func readStat(path string) (collective.State, uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	fields := procmaps.StatFields(b)
	if len(fields) <= 22-3 {
		return 0, 0, errors.New("malformed stat")
	}
	started, err := strconv.ParseUint(string(fields[22-3]), 10, 64)
	return stateOf(fields[0][0]), started, err
}

// stateOf a letter of proc(5).
func stateOf(letter byte) collective.State {
	switch letter {
	case 'R':
		return collective.Running
	case 'S', 'I':
		return collective.Sleeping
	case 'D':
		return collective.Uninterruptible
	case 'T':
		return collective.Stopped
	case 't':
		return collective.Traced
	case 'Z':
		return collective.Zombie
	case 'X', 'x':
		return collective.Gone
	}
	return collective.Unknown
}
