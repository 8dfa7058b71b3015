// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestRowsOfOneIDAreAddedUp: before Linux 6.0 a stack that allocates in two contexts has
// two rows, which differ only in their values.
func TestRowsOfOneIDAreAddedUp(t *testing.T) {
	table := list{{1, 100}, {2, 5}, {1, 10}}
	read := Read(reader{}, table)
	require.Len(t, read, 2)
	for i, want := range []entry{{1, 110}, {2, 5}} {
		require.Equal(t, want.stack, read[i].ID.StackID)
		require.Equal(t, want.bytes, read[i].Values.AllocBytes)
		require.Equal(t, want.stack, read[i].Data.(data).stack)
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
