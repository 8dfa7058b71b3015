// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// endsInterval is how often processes are checked, and so how exact the time of an end is.
const endsInterval = 100 * time.Millisecond

// watchEnds checks processes until the returned function is called, which returns when those ended that have
// ended meanwhile.
func watchEnds(procfs string, pids []uint32) func() map[uint32]time.Time {
	ended, starts := map[uint32]time.Time{}, map[uint32]time.Duration{}
	for _, pid := range pids {
		if s, err := holder.Read(procfs, pid); err == nil {
			starts[pid] = s.Start
		}
	}
	look := func() {
		for _, pid := range pids {
			if _, isKnown := ended[pid]; !isKnown && hasEnded(procfs, pid, starts[pid]) {
				ended[pid] = time.Now()
			}
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(endsInterval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				look()
			}
		}
	}()
	return func() map[uint32]time.Time {
		close(stop)
		<-stopped
		look()
		return ended
	}
}

// hasEnded reports whether there is no process any more that has this id and started then (0: unknown). One that
// its parent has not waited for has ended, too.
func hasEnded(procfs string, pid uint32, start time.Duration) bool {
	dir := filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10))
	s, err := holder.Read(procfs, pid)
	if err != nil {
		_, err = os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	}
	if s.Mode == 'Z' || s.Mode == 'X' {
		threads, _ := os.ReadDir(filepath.Join(dir, "task"))
		return len(threads) < 2 // else its main thread alone has ended
	}
	return start > 0 && s.Start != start
}

// isKernelThread reports whether a process is one of the kernel's: PF_KTHREAD (include/linux/sched.h) is in its flags,
// field 9 of proc_pid_stat(5).
func isKernelThread(procfs string, pid uint32) bool {
	const kthread = 0x00200000
	stat, err := os.ReadFile(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "stat"))
	if err != nil {
		return false
	}
	fields := procmaps.StatFields(stat) // from field 3 on
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 32)
	return err == nil && flags&kthread != 0
}
