// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

// allocs is a data source like that of cuda_alloc.
type allocs struct {
	t      *testing.T
	ds     datasource.DataSource
	fields map[string]datasource.FieldAccessor
}

func newAllocs(t *testing.T) *allocs {
	ds, err := datasource.New(datasource.TypeArray, allocRows)
	require.NoError(t, err)
	a := &allocs{t, ds, map[string]datasource.FieldAccessor{}}
	proc, err := ds.AddField("proc", api.Kind_Invalid, datasource.WithFlags(datasource.FieldFlagEmpty))
	require.NoError(t, err)
	a.fields["pid"], err = proc.AddSubField("pid", api.Kind_Uint32)
	require.NoError(t, err)
	for name, kind := range map[string]api.Kind{
		"process": api.Kind_Uint64, "stack_id": api.Kind_Uint64, "kind": api.Kind_String, "device": api.Kind_Int32,
		"alloc_bytes": api.Kind_Uint64, "alloc_objects": api.Kind_Uint64, "freed_bytes": api.Kind_Uint64, "freed_objects": api.Kind_Uint64,
		"implicit_bytes": api.Kind_Uint64, "implicit_objects": api.Kind_Uint64, "inuse_bytes": api.Kind_Uint64,
		"inuse_objects": api.Kind_Uint64, "peak_bytes": api.Kind_Uint64,
	} {
		a.fields[name], err = ds.AddField(name, kind)
		require.NoError(t, err)
	}
	return a
}

type row struct {
	process uint64
	kind    string
	device  int32
	bytes   uint64
}

func (a *allocs) of(all ...row) datasource.PacketArray {
	packet, err := a.ds.NewPacketArray()
	require.NoError(a.t, err)
	for _, r := range all {
		d := packet.New()
		require.NoError(a.t, a.fields["pid"].PutUint32(d, uint32(r.process)))
		require.NoError(a.t, a.fields["process"].PutUint64(d, r.process))
		require.NoError(a.t, a.fields["kind"].PutString(d, r.kind))
		require.NoError(a.t, a.fields["device"].PutInt32(d, r.device))
		require.NoError(a.t, a.fields["inuse_bytes"].PutUint64(d, r.bytes))
		packet.Append(d)
	}
	return packet
}

// TestMemoryInUseIsTheSumOfKinds: what the driver gave, by device; blocks of PyTorch's pool
// lie in it; pinned memory is the host's; a process that has ended holds nothing.
func TestMemoryInUseIsTheSumOfKinds(t *testing.T) {
	a := newAllocs(t)
	source, err := rows.Bind(a.ds)
	require.NoError(t, err)
	u := &inuse{}
	got := u.read(5, source, a.of(
		row{7, "device", 0, 100}, row{7, "pool", 0, 20}, row{7, "tensor", 0, 90}, row{7, "device", 1, 3},
		row{7, "host", 0, 1000}, row{7, "host", -1, 24}, row{8, "vmm", -1, 6}))
	of := func(pid uint32) weave.Thread { return weave.Thread{Process: uint64(pid), PID: pid, TID: pid} }
	require.Equal(t, []*weave.Inuse{
		{Thread: of(7), At: 5, Device: weave.DeviceOf(0), Bytes: 120},
		{Thread: of(7), At: 5, Device: weave.DeviceOf(1), Bytes: 3},
		{Thread: of(7), At: 5, IsHost: true, Bytes: 1024},
		{Thread: of(8), At: 5, Bytes: 6},
	}, got)
	require.Equal(t, []*weave.Inuse{
		{Thread: of(7), At: 6, Device: weave.DeviceOf(0), Bytes: 0},
		{Thread: of(7), At: 6, Device: weave.DeviceOf(1), Bytes: 9},
		{Thread: of(7), At: 6, IsHost: true, Bytes: 0},
		{Thread: of(8), At: 6, Bytes: 0},
	}, u.read(6, source, a.of(row{7, "device", 1, 9})))
	require.Len(t, u.read(7, source, a.of()), 1, "reported once")
	require.Empty(t, u.read(8, source, a.of()))
}

func TestParseBeside(t *testing.T) {
	got, err := parseBeside(" nccl_trace,cuda_alloc,nccl_trace", "cuda_kernel")
	require.NoError(t, err)
	require.Equal(t, []string{"cuda_alloc", "nccl_trace"}, got)
	for _, wrong := range []string{"cuda_kernel", "py_stack", ","} {
		_, err := parseBeside(wrong, "cuda_kernel")
		require.Error(t, err, wrong)
	}
	got, err = parseBeside("", "cuda_kernel")
	require.NoError(t, err)
	require.Empty(t, got)
}
