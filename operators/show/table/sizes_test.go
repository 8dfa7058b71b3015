// SPDX-License-Identifier: Apache-2.0

package table

import (
	"math"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
)

// TestSizesAreNotNegative: a process may request up to 2⁶⁴ − 1 bytes.
func TestSizesAreNotNegative(t *testing.T) {
	ds, err := datasource.New(datasource.TypeSingle, "ooms")
	require.NoError(t, err)
	bytes, err := ds.AddField("requested_bytes", api.Kind_Uint64)
	require.NoError(t, err)
	words, err := ds.AddField("requested", api.Kind_String)
	require.NoError(t, err)
	format := sizes(sizesOf(ds))
	for n, want := range map[uint64]string{26 << 20: "26.0 MiB", 1 << 63: "8.00 EiB", math.MaxUint64: "8.00 EiB"} {
		p, err := ds.NewPacketSingle()
		require.NoError(t, err)
		require.NoError(t, bytes.PutUint64(p, n))
		require.NoError(t, format(ds, p))
		got, err := words.String(p)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
