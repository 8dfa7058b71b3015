// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

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

// Compare returns -1, 0 or 1: the order of rows in files.
func (id RowID) Compare(other RowID) int {
	return cmp.Or(
		cmp.Compare(id.Process, other.Process), cmp.Compare(id.StackID, other.StackID), strings.Compare(id.Kind, other.Kind),
		cmp.Compare(id.Device, other.Device), cmp.Compare(id.Row, other.Row), cmp.Compare(id.Thread, other.Thread),
		cmp.Compare(id.Span, other.Span), cmp.Compare(id.Born, other.Born),
	)
}

// Hash returns 16 hexadecimal digits that stand for the row in files. Two rows may have the same process, kind, device
// and names of frames: stacks that differ in addresses alone.
func (id RowID) Hash() string {
	b := make([]byte, 0, 80)
	for _, n := range []uint64{id.Process, id.StackID, uint64(uint32(id.Device)), uint64(id.Thread), id.Row, uint64(id.Span), id.Born} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	sum := sha256.Sum256(append(b, id.Kind...))
	return hex.EncodeToString(sum[:8])
}
