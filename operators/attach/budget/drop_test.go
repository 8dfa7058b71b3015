// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// A row that ends has nothing in use, and what it was keeps adding up.
func TestARowThatEndsHasNothingInUse(t *testing.T) {
	row := make([]byte, 64)
	for i, v := range []uint64{1000, 10, 300, 3, 0, 0, 700, 900} {
		binary.NativeEndian.PutUint64(row[8*i:], v)
	}
	endRow(row)
	var after []uint64
	for i := range 8 {
		after = append(after, binary.NativeEndian.Uint64(row[8*i:]))
	}
	require.Equal(t, []uint64{1000, 10, 300, 3, 700, 7, 0, 900}, after)
}
