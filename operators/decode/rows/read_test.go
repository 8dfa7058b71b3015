// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestRowsOfOneIDAreAddedUp: before Linux 6.0 a stack that allocates in two contexts has
// two rows, which differ only in their values.
func TestRowsOfOneIDAreAddedUp(t *testing.T) {
	table := list{{1, 100}, {2, 5}, {1, 10}}
	var r Reading
	for range 2 {
		read := r.Read(reader{}, table)
		require.Len(t, read, 2)
		for i, want := range []entry{{1, 110}, {2, 5}} {
			require.Equal(t, want.stack, read[i].ID.StackID)
			require.Equal(t, want.bytes, read[i].Values.AllocBytes)
			require.Equal(t, want.stack, read[i].Data.(data).stack)
		}
	}
}

func TestAReadingIsOfThatTableAlone(t *testing.T) {
	var r Reading
	large := make(list, 5000)
	for i := range large {
		large[i] = entry{uint64(i), 1}
	}
	require.Len(t, r.Read(reader{}, large), 5000)
	require.Len(t, r.Read(reader{}, list{{7, 3}}), 1)
	require.LessOrEqual(t, cap(r.rows), 1000, "the memory of a large table is given back")
	require.EqualValues(t, 3, r.Read(reader{}, list{{7, 3}})[0].Values.AllocBytes)
}

func BenchmarkRead(b *testing.B) {
	table := make(list, 12288)
	for i := range table {
		table[i] = entry{uint64(i), 1}
	}
	var r Reading
	b.ReportAllocs()
	for b.Loop() {
		r.Read(reader{}, table)
	}
}

// BenchmarkVersion is the cost of one row each second, without and with --labels.
func BenchmarkVersion(b *testing.B) {
	for _, labels := range []string{"", "team=vision,request=/chat"} {
		b.Run("labels="+labels, func(b *testing.B) {
			ds, err := datasource.New(datasource.TypeArray, "allocs")
			require.NoError(b, err)
			var f processFields
			if labels != "" {
				f.labels, err = ds.AddField("labels", api.Kind_String)
				require.NoError(b, err)
			}
			packet, err := ds.NewPacketArray()
			require.NoError(b, err)
			d := packet.New()
			if labels != "" {
				require.NoError(b, f.labels.PutString(d, labels))
			}
			b.ReportAllocs()
			for b.Loop() {
				f.Version(d, 5)
			}
		})
	}
}

type entry struct {
	stack uint64
	bytes int64
}

// data is a row of list, which is a table.
type data struct {
	datasource.Data
	entry
}

type list []entry

func (l list) Len() int                  { return len(l) }
func (l list) Get(i int) datasource.Data { return data{entry: l[i]} }
func (list) Swap(int, int)               {}
func (list) New() datasource.Data        { return nil }
func (list) Append(datasource.Data)      {}
func (list) Release(datasource.Data)     {}
func (list) Resize(int) error            { return nil }

type reader struct{}

func (reader) ID(d datasource.Data) profile.RowID { return profile.RowID{StackID: d.(data).stack} }
func (reader) Values(d datasource.Data) profile.Values {
	return profile.Values{AllocBytes: d.(data).bytes}
}
func (reader) Process(datasource.Data) profile.Process { return profile.Process{} }
func (reader) Kernel(datasource.Data) string           { return "" }
func (reader) PID(datasource.Data) uint32              { return 0 }

func (reader) Version(_ datasource.Data, stack uint64) uint64 { return stack }
