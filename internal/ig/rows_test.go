// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
)

// member is a field of a program's struct.
type member struct {
	name      string
	size, off uint32
	kind      api.Kind
}

func (m member) FieldName() string   { return m.name }
func (m member) FieldSize() uint32   { return m.size }
func (m member) FieldOffset() uint32 { return m.off }
func (m member) FieldType() api.Kind { return m.kind }

func TestAnAppendedRowHasTheProgramsPart(t *testing.T) {
	ds, err := datasource.New(datasource.TypeArray, "allocs")
	require.NoError(t, err)
	_, err = ds.AddStaticFields(16, []datasource.StaticField{
		member{"bytes", 8, 8, api.Kind_Uint64}, member{"device", 4, 0, api.Kind_Int32},
	})
	require.NoError(t, err)
	_, err = ds.AddField("frame", api.Kind_String)
	require.NoError(t, err)
	packet, err := ds.NewPacketArray()
	require.NoError(t, err)
	for n := range uint64(2) {
		d, err := AppendRow(ds, packet)
		require.NoError(t, err)
		require.NoError(t, ds.GetField("bytes").PutUint64(d, 7+n))
		require.NoError(t, ds.GetField("device").PutInt32(d, -1))
		require.NoError(t, ds.GetField("frame").PutString(d, "f"))
	}
	require.Equal(t, 2, packet.Len())
	for n := range 2 {
		bytes, err := ds.GetField("bytes").Uint64(packet.Get(n))
		require.NoError(t, err)
		require.EqualValues(t, 7+n, bytes)
	}
}
