// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// table makes readings of communicators.
type table struct {
	t  *testing.T
	ds datasource.DataSource
	i  *instance
}

func newTable(t *testing.T) *table {
	t.Helper()
	ds, err := gadgetcontext.New(t.Context(), "nccl_trace").RegisterDataSource(datasource.TypeArray, communicatorsSource)
	require.NoError(t, err)
	proc, err := ds.AddField("proc", api.Kind_Invalid)
	require.NoError(t, err)
	_, err = proc.AddSubField("pid", api.Kind_Uint32)
	require.NoError(t, err)
	for name, kind := range map[string]api.Kind{"process": api.Kind_Uint64, "communicator": api.Kind_Uint64, "created_boot_ns": api.Kind_Uint64,
		"identity": api.Kind_Uint64, "exit_boot_ns": api.Kind_Uint64, "late": api.Kind_Uint32, "rank": api.Kind_Int32,
		"size": api.Kind_Int32, "device": api.Kind_Int32, "state": api.Kind_String} {
		_, err = ds.AddField(name, kind)
		require.NoError(t, err)
	}
	i := &instance{ended: map[communicatorKey]time.Time{}, identities: identities{known: map[communicatorKey]*answer{}}}
	i.fields, err = bindFields(ds)
	require.NoError(t, err)
	return &table{t, ds, i}
}

// destroyed is a reading of communicators of process 1 with these handles.
func (x *table) destroyed(now time.Time, handles ...uint64) {
	x.t.Helper()
	p, err := x.ds.NewPacketArray()
	require.NoError(x.t, err)
	for _, handle := range handles {
		row, f := p.New(), &x.i.fields
		require.NoError(x.t, errors.Join(f.process.PutUint64(row, 1), f.handle.PutUint64(row, handle),
			f.created.PutUint64(row, handle), f.state.PutString(row, "destroyed")))
		p.Append(row)
	}
	require.NoError(x.t, x.i.complete(p, now))
}

func newMap(t *testing.T, keySize, valueSize, entries uint32) *ebpf.Map {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making eBPF maps needs root")
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: keySize, ValueSize: valueSize, MaxEntries: entries})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func handlesIn(t *testing.T, m *ebpf.Map) (handles []uint64) {
	t.Helper()
	require.NoError(t, mapiter.Entries(m, func(key, _ []byte) { handles = append(handles, binary.NativeEndian.Uint64(key[8:])) }))
	return handles
}

// TestEndedCommunicatorsAreForgottenWithTheirRows: those of exited processes, and those whose
// handle was used again, do not keep later ones from being deleted.
func TestEndedCommunicatorsAreForgottenWithTheirRows(t *testing.T) {
	const size = endedKept + 100
	x := newTable(t)
	x.i.rows = newMap(t, 16, 8, size)
	var first, second []uint64
	for n := range uint64(size) {
		first, second = append(first, n), append(second, size+n)
	}
	now := time.Unix(1000, 0)
	x.destroyed(now, first...)
	require.Len(t, x.i.ended, size)
	for _, handle := range second {
		require.NoError(t, x.i.rows.Put([2]uint64{1, handle}, uint64(0)))
	}
	x.destroyed(now, second...)
	require.Len(t, handlesIn(t, x.i.rows), size, "they have just ended")
	for range 3 {
		now = now.Add(endedGrace)
		x.destroyed(now, handlesIn(t, x.i.rows)...)
		require.Len(t, handlesIn(t, x.i.rows), endedKept-1)
	}
	x.destroyed(now)
	require.Empty(t, x.i.ended)
}
