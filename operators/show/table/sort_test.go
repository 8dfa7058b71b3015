// SPDX-License-Identifier: Apache-2.0

package table

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
)

// TestRowsAreSortedAsByAStableSort, the largest first, at any number of rows.
func TestRowsAreSortedAsByAStableSort(t *testing.T) {
	source, err := datasource.New(datasource.TypeArray, "rows")
	require.NoError(t, err)
	var fields []datasource.FieldAccessor
	for _, name := range []string{"first", "second", "number"} {
		field, err := source.AddField(name, api.Kind_Uint64)
		require.NoError(t, err)
		fields = append(fields, field)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 3, 10, 1000} {
		packet, err := source.NewPacketArray()
		require.NoError(t, err)
		var want [][3]uint64
		for i := range n {
			row := [3]uint64{random.Uint64N(4), random.Uint64N(8), uint64(i)}
			data := packet.New()
			for f, field := range fields {
				require.NoError(t, field.PutUint64(data, row[f]))
			}
			packet.Append(data)
			want = append(want, row)
		}
		slices.SortStableFunc(want, func(a, b [3]uint64) int {
			return slices.Compare([]uint64{b[0], b[1]}, []uint64{a[0], a[1]})
		})
		sortRows(packet, fields[:2])
		var got [][3]uint64
		for i := range n {
			var row [3]uint64
			for f, field := range fields {
				row[f], err = field.Uint64(packet.Get(i))
				require.NoError(t, err)
			}
			got = append(got, row)
		}
		require.Equal(t, want, got)
	}
}
