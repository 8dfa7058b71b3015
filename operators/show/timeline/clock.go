// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// bootNow is the kernel's clock of events, CLOCK_BOOTTIME.
func bootNow() uint64 { return uint64(ig.SinceBoot()) }

// wallOffset added to boot time gives nanoseconds since 1970. It is read
// between two readings of the clock, of which the closest pair of a few counts.
func wallOffset() time.Duration {
	var offset int64
	best := ^uint64(0)
	for range 16 {
		before := bootNow()
		wall := time.Now().UnixNano()
		after := bootNow()
		if after-before < best {
			best, offset = after-before, wall-int64(before+(after-before)/2)
		}
	}
	return time.Duration(offset)
}
