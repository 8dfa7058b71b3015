// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// suspend stops the machine for as long as the file /run/vm/suspend of the guest says ("10s"), and
// then removes the file: to the guest it is as if its clocks had jumped.
func suspend(work string, qemu *os.Process, ended <-chan struct{}) {
	file := filepath.Join(work, "suspend")
	for {
		select {
		case <-ended:
			return
		case <-time.After(50 * time.Millisecond):
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if d, err := time.ParseDuration(string(text)); err == nil {
			_ = qemu.Signal(syscall.SIGSTOP)
			time.Sleep(d)
			_ = os.Remove(file)
			_ = qemu.Signal(syscall.SIGCONT)
		}
	}
}
