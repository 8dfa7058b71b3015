// SPDX-License-Identifier: Apache-2.0

package profile

// RowID identifies a row before its stack has a name, which is cheap to compare.
type RowID struct {
	Process, StackID uint64
	Kind             string
	Device           int32
	Thread           uint32
	// Row distinguishes calls of one stack.
	Row  uint64
	Span Span
	// Born distinguishes a span's row from one that the kernel forgot and began again.
	Born uint64
}
