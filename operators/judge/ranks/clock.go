// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

func bootTime() collective.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // the kernel has had it since 2.6.39
	}
	return collective.Time(t.Nano())
}

// oneLine keeps what a process calls itself from driving a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, s)
}
