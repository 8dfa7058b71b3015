// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads the clock of the programs, bpf_ktime_get_boot_ns: CLOCK_BOOTTIME, which continues while the
// machine is suspended.
func SinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails for unknown clocks only
	return time.Duration(t.Nano())
}
