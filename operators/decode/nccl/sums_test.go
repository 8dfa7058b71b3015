// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// rowsOf counts rows by the serial of their communicator.
func rowsOf(t *testing.T, m *ebpf.Map) map[uint64]int {
	t.Helper()
	n := map[uint64]int{}
	require.NoError(t, mapiter.Entries(m, func(key, _ []byte) { n[binary.NativeEndian.Uint64(key[8:])]++ }))
	return n
}

// TestSumsOfEndedCommunicatorsMakeRoom: software that replaces its communicators for days has the same
// handle again and again, and each time other rows.
func TestSumsOfEndedCommunicatorsMakeRoom(t *testing.T) {
	const kept, process = 100, 7
	s := &sums{communicators: newMap(t, 16, 16, 64), layout: sumsLayout{serial: 0, state: 8, rowSerial: 8}}
	for range 2 {
		s.tables = append(s.tables, newMap(t, 24, 8, kept*sumsKept))
	}
	is := func(handle, serial, state uint64) {
		require.NoError(t, s.communicators.Put([2]uint64{process, handle}, [2]uint64{serial, state}))
	}
	issue := func(serial uint64, rows int) {
		for n := range rows {
			for _, table := range s.tables {
				require.NoError(t, table.Put([3]uint64{process, serial, uint64(n)}, uint64(n)))
			}
		}
	}
	x, start := newTable(t), time.Unix(1000, 0)
	x.i.sums = s
	at := func(seconds int, want map[uint64]int) {
		t.Helper()
		x.destroyed(start.Add(time.Duration(seconds) * time.Second)) // a reading
		for _, table := range s.tables {
			require.Equal(t, want, rowsOf(t, table), "after %d s", seconds)
		}
	}
	issue(0, 5) // of no communicator
	is(0xa, 1, 0)
	issue(1, 150)
	is(0xb, 2, 1)
	issue(2, 90)
	is(0xc, 3, 0)
	issue(3, 60)
	is(0xc, 4, 0) // the same handle: 3 has ended
	issue(4, 30)
	at(0, map[uint64]int{0: 5, 1: 150, 2: 90, 3: 60, 4: 30})
	is(0xb, 2, 2)
	at(20, map[uint64]int{0: 5, 1: 150, 2: 90, 3: 60, 4: 30})
	require.NoError(t, s.communicators.Delete([2]uint64{process, 0xc}))
	at(50, map[uint64]int{0: 5, 1: 150, 2: 90, 3: 60, 4: 30})
	at(65, map[uint64]int{0: 5, 1: 150, 2: 90, 4: 30})
	at(90, map[uint64]int{0: 5, 1: 150, 4: 30})
	at(1000, map[uint64]int{0: 5, 1: 150, 4: 30})
	issue(5, 80) // one that was deleted before it was seen
	at(1020, map[uint64]int{0: 5, 1: 150, 5: 80})
	at(1050, map[uint64]int{0: 5, 1: 150, 5: 80})
}

// TestFewSumsOfEndedCommunicatorsStay: they are part of what a run has found.
func TestFewSumsOfEndedCommunicatorsStay(t *testing.T) {
	s := &sums{communicators: newMap(t, 16, 16, 64), layout: sumsLayout{serial: 0, state: 8, rowSerial: 8},
		tables: []*ebpf.Map{newMap(t, 24, 8, 100*sumsKept)}}
	for n := range uint64(100) {
		require.NoError(t, s.tables[0].Put([3]uint64{1, 1 + n/10, n}, n))
	}
	for n := range 100 {
		require.NoError(t, s.sweep(time.Unix(1000, 0).Add(time.Duration(n)*endedGrace)))
	}
	require.Len(t, rowsOf(t, s.tables[0]), 10)
}

func TestMembersOfSumsAreFound(t *testing.T) {
	u32, u64 := &btf.Int{Name: "u32", Size: 4}, &btf.Int{Name: "u64", Size: 8}
	structOf := func(members ...btf.Member) *btf.Struct {
		at := btf.Bits(0)
		for n := range members {
			members[n].Offset = at
			size, err := btf.Sizeof(members[n].Type)
			require.NoError(t, err)
			at += btf.Bits(8 * size)
		}
		return &btf.Struct{Size: uint32(at / 8), Members: members}
	}
	gc := gadgetcontext.New(t.Context(), "nccl_trace")
	_, err := layoutOfSums(gc)
	require.ErrorIs(t, err, ig.ErrAbsent)
	key := structOf(btf.Member{Name: "process", Type: u64}, btf.Member{Name: "serial", Type: u64}, btf.Member{Name: "op", Type: u32})
	value := structOf(btf.Member{Name: "identity", Type: u64}, btf.Member{Name: "rank", Type: u32}, btf.Member{Name: "serial", Type: u64}, btf.Member{Name: "state", Type: u32})
	gc.SetVar(operators.MapSpecPrefix+communicatorsMap, &ebpf.MapSpec{Value: value})
	gc.SetVar(operators.MapSpecPrefix+operationsMap, &ebpf.MapSpec{Key: key})
	gc.SetVar(operators.MapSpecPrefix+peersMap, &ebpf.MapSpec{Key: key})
	l, err := layoutOfSums(gc)
	require.NoError(t, err)
	require.Equal(t, sumsLayout{serial: 12, state: 20, rowSerial: 8}, l)
	gc.SetVar(operators.MapSpecPrefix+peersMap, &ebpf.MapSpec{Key: structOf(btf.Member{Name: "serial", Type: u64}, btf.Member{Name: "process", Type: u64})})
	_, err = layoutOfSums(gc)
	require.Error(t, err)
}
