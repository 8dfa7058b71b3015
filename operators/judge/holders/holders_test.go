// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/stretchr/testify/require"
)

type rowKey struct {
	Process, Stack uint64
	Kind           uint32
	Device         int32
	Instance       uint64
}

type row struct {
	AllocBytes, AllocObjects, FreedBytes, FreedObjects, ImplicitBytes, ImplicitObjects, InuseBytes, PeakBytes uint64
}

// members makes a struct of 64-bit members.
func members(name string, names ...string) *btf.Struct {
	s := &btf.Struct{Name: name, Size: uint32(len(names) * 8)}
	for i, n := range names {
		s.Members = append(s.Members, btf.Member{Name: n, Type: &btf.Int{Size: 8}, Offset: btf.Bits(i * 64)})
	}
	return s
}

func TestLayoutIsThatOfTheObject(t *testing.T) {
	key := members("row_key", "process", "stack", "kind_and_device", "instance")
	key.Members[2] = btf.Member{Name: "kind", Type: &btf.Int{Size: 4}, Offset: 128}
	key.Members = append(key.Members, btf.Member{Name: "device", Type: &btf.Int{Size: 4}, Offset: 160})
	value := members("row", "alloc_bytes", "inuse_bytes")
	l, err := layoutOf(&ebpf.MapSpec{Key: key, Value: value})
	require.NoError(t, err)
	require.Equal(t, layout{process: 0, stack: 8, kind: 16, device: 20, instance: 24, inuse: 8}, l)
	_, err = layoutOf(&ebpf.MapSpec{Key: &btf.Struct{Name: "row_key", Members: append(key.Members[:3:3], key.Members[4])}, Value: value})
	require.ErrorContains(t, err, "instance")
	_, err = layoutOf(&ebpf.MapSpec{Key: &btf.Int{Size: 8}, Value: value})
	require.ErrorContains(t, err, "not a struct")
}

func hash(t *testing.T, key, value uint32) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: key, ValueSize: value, MaxEntries: 64})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func TestLargestRowsOfTheProcessThatLive(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("needs root to make maps; runs as user %d", os.Geteuid())
	}
	require.NoError(t, rlimit.RemoveMemlock())
	rows, instances := hash(t, 32, 64), hash(t, 16, 16)
	put := func(process, stack, instance uint64, inuse int64) {
		require.NoError(t, rows.Put(rowKey{Process: process, Stack: stack, Instance: instance}, row{InuseBytes: uint64(inuse)}))
	}
	for stack := range uint64(13) {
		put(1, stack, 10, int64(100*stack))
	}
	put(1, 3, 11, 1000)  // the same stack in another context
	put(1, 4, 12, 90000) // a context that was destroyed
	put(1, 5, 13, -8)    // a free that was counted first
	put(2, 6, 10, 90000) // another process
	pinned := rowKey{Process: 1, Stack: 7, Kind: kindHost, Instance: 10}
	require.NoError(t, rows.Put(pinned, row{InuseBytes: 1 << 40})) // which takes no room on a GPU
	require.NoError(t, instances.Put([2]uint64{1, 12}, [2]uint64{0, 1}))
	require.NoError(t, instances.Put([2]uint64{1, 11}, [2]uint64{0, 0}))

	all := sums{}
	at := layout{process: 0, stack: 8, kind: 16, device: 20, instance: 24, inuse: 48}
	require.NoError(t, all.add(memory{process: 1}, rows, at, instances))
	require.Equal(t, Held{
		Bytes: 100*(1+2+3+4+5+6+7+8+9+10+11+12) + 1000,
		Largest: [10]Holder{{3, 1300}, {12, 1200}, {11, 1100}, {10, 1000}, {9, 900}, {8, 800}, {7, 700},
			{6, 600}, {5, 500}, {4, 400}},
	}, all.held())
	require.Equal(t, Held{}, sums{}.held())

	host := sums{}
	require.NoError(t, host.add(memory{process: 1, isHost: true, device: 5}, rows, at, instances))
	require.Equal(t, Held{Bytes: 1 << 40, Largest: [10]Holder{{7, 1 << 40}}}, host.held())

	for device, bytes := range map[int32]uint64{-1: 1 << 11, 0: 1 << 12, 1: 1 << 13} {
		require.NoError(t, rows.Put(rowKey{Process: 3, Stack: 8, Device: device, Instance: 10}, row{InuseBytes: bytes}))
	}
	for device, bytes := range map[int32]uint64{-1: 7 << 11, 0: 3 << 11, 1: 5 << 11, 2: 1 << 11} {
		one := sums{}
		require.NoError(t, one.add(memory{process: 3, device: device}, rows, at, instances))
		require.Equal(t, bytes, one.held().Bytes, "what is on device %d, or may be", device)
	}
}

// Inspektor Gadget would wait for ever for an error of Start.
func TestAFailedStartEndsTheRun(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "none")
	i := &instance{}
	require.NoError(t, i.Start(gc))
	require.ErrorIs(t, gc.Context().Err(), context.Canceled)
	require.NoError(t, i.Stop(gc))
	require.ErrorContains(t, i.PostStop(gc), "map instances_by_number")
	require.NoError(t, i.PostStop(gc), "reported once")
	require.NoError(t, i.Close(gc))
}
