// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/operators/stack"
)

// OOM is one allocation that the driver refused, with who held the memory then.
type OOM struct {
	Time    time.Time
	Process Process
	Stack   stack.Stack
	Span    Span
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
