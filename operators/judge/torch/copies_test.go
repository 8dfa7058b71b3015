// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
)

// A worker deletes its copies of tensors whose process has reported nothing since attach: its pool is known later.
func TestAForkedWorkerDoesNotHoldItsParentsTensors(t *testing.T) {
	ds, err := datasource.New(datasource.TypeArray, poolsSource)
	require.NoError(t, err)
	add := func(to datasource.FieldAccessor, name string, kind api.Kind) datasource.FieldAccessor {
		var f datasource.FieldAccessor
		if to == nil {
			f, err = ds.AddField(name, kind)
		} else {
			f, err = to.AddSubField(name, kind)
		}
		require.NoError(t, err)
		return f
	}
	proc := add(nil, "proc", api.Kind_Invalid)
	pid, parent := add(proc, "pid", api.Kind_Uint32), add(add(proc, "parent", api.Kind_Invalid), "pid", api.Kind_Uint32)
	device, out, ooms := add(nil, "device", api.Kind_Int32), add(nil, "out_blocks", api.Kind_Uint64), add(nil, "ooms", api.Kind_Uint64)
	c, err := newCopies(ds)
	require.NoError(t, err)

	type row struct {
		pid, parent uint32
		device      int32
		out, ooms   uint64
	}
	left := func(rows ...row) (pids []uint32) {
		packet, err := ds.NewPacketArray()
		require.NoError(t, err)
		for _, r := range rows {
			d := packet.New()
			packet.Append(d)
			require.NoError(t, pid.PutUint32(d, r.pid))
			require.NoError(t, parent.PutUint32(d, r.parent))
			require.NoError(t, device.PutInt32(d, r.device))
			require.NoError(t, out.PutUint64(d, r.out))
			require.NoError(t, ooms.PutUint64(d, r.ooms))
		}
		require.NoError(t, c.remove(packet))
		for n := range packet.Len() {
			n, _ := pid.Uint32(packet.Get(n))
			pids = append(pids, n)
		}
		return pids
	}
	worker := row{pid: 8, parent: 7}
	require.Equal(t, []uint32{8}, left(worker), "its parent is not known to have tensors")
	require.Equal(t, []uint32{7}, left(worker, row{pid: 7, parent: 1, out: 5}))
	require.Equal(t, []uint32{7, 5}, left(row{pid: 7, parent: 1}, worker, row{pid: 9, parent: 7}, row{pid: 5, parent: 1, out: 5}), "attached to all of them in the middle")
	require.Equal(t, []uint32{8, 7}, left(worker, row{pid: 7, parent: 1, device: 1, out: 5}), "another device")
	worker.out = 1
	require.Equal(t, []uint32{7, 8}, left(row{pid: 7, parent: 1, out: 5}, worker), "a server that initialised CUDA itself")
	worker.out, worker.ooms = 0, 1
	require.Equal(t, []uint32{7, 8}, left(row{pid: 7, parent: 1, out: 5}, worker))
	require.Empty(t, left())
}
