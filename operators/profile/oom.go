// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/operators/stack"
)

// OOM is one allocation that the driver refused, with who held the memory then.
type OOM struct {
	Time    time.Time
	Process Process
	Stack   stack.Stack
	// API is the driver's function, Error what it returned, by name or number.
	API, Error     string
	RequestedBytes int64
	// InuseBytes is what the process itself held.
	InuseBytes int64
	// Holders are the stacks that held most, largest first.
	Holders []Holder
}

// Holder is a stack and what it held.
type Holder struct {
	Stack stack.Stack
	Bytes int64
}

// FormatBytes writes a number of bytes for people: 12.0 MiB, 512 B.
func FormatBytes(n int64) string {
	if n > -1024 && n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v := float64(n)
	unit := -1
	for ; (v >= 1024 || v <= -1024) && unit < 5; unit++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[unit])
}
