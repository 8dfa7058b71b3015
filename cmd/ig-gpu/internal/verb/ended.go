// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// endsInterval is how often processes are checked, and so how exact the time of an end is.
const endsInterval = 100 * time.Millisecond

// watchEnds checks processes until the returned function is called, which returns when those ended that have
// ended meanwhile.
func watchEnds(procfs string, pids []uint32) func() map[uint32]time.Time {
	ended, starts := map[uint32]time.Time{}, map[uint32]uint64{}
	for _, pid := range pids {
		starts[pid], _ = procmaps.StartTime(procfs, pid) // 0: not known
	}
	look := func() {
		for _, pid := range pids {
			if _, isKnown := ended[pid]; !isKnown && procmaps.HasEnded(procfs, pid, starts[pid]) {
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
