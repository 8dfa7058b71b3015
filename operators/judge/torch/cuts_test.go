// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"context"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/stretchr/testify/require"
)

// The live table is as large as a program's allocations: --torch-fits and --waste together read it
// once in an interval, as each of them alone.
func TestLayoutsAreReadOnceForAllThatIsComputedFromThem(t *testing.T) {
	layout := &lay{[]area{areaOf(100, 20)}, []block{{105 * mib, 110 * mib, 0, owner{stack: 1}}}}
	reads := 0
	c := &cuts{size: 4 << 20, all: func(func(uint64) bool) (map[uint64]*lay, error) {
		reads++
		return map[uint64]*lay{7: layout}, nil
	}}
	interval := func() {
		for range 3 { // pools, and rows
			_, err := c.fits(7)
			require.NoError(t, err)
			_, err = c.fragmentsOf(7)
			require.NoError(t, err)
		}
	}
	interval()
	reads = 0 // what is requested is known from now on
	for n := range 5 {
		c.read = time.Time{}
		interval()
		require.Equal(t, n+1, reads)
	}
	fits, err := c.fits(7)
	require.NoError(t, err)
	require.Equal(t, fitting(layout.areas, layout.blocks, 4<<20), fits)
	apart, err := c.fragmentsOf(7)
	require.NoError(t, err)
	require.Equal(t, map[owner]uint64{{stack: 1}: 15 * mib}, apart)
}

// A process chooses where its memory is, and of which sizes: sums of them must not wrap.
func TestExtentsThatWrapAreLeftOut(t *testing.T) {
	c := &cuts{}
	c.live.process, c.live.pointer = 0, 8
	c.live.bytes, c.live.stack, c.live.span, c.live.device, c.live.kind = 0, 8, 16, 24, 28
	c.mappings.process, c.mappings.address, c.mappings.bytes = 0, 8, 0
	newMap := func(name string, value uint32) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 16, ValueSize: value, MaxEntries: 16})
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		return m
	}
	c.live.ebpf, c.mappings.ebpf = newMap("live", 32), newMap("mappings", 8)
	key := func(at uint64) []byte {
		return binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, 7), at)
	}
	add := func(kind byte, at, bytes uint64) {
		value := make([]byte, 32)
		binary.NativeEndian.PutUint64(value, bytes)
		value[c.live.kind] = kind
		require.NoError(t, c.live.ebpf.Put(key(at), value))
	}
	// The sum of the overlaps with the area, 4096 + 2 · (2⁶³ - 512), is 3072, less than each of them.
	const start = 1<<63 + 1<<20
	add(kindDevice, start, 1<<20)
	add(kindTensor, start+4096, 4096)
	add(kindTensor, start+8192, 1<<63-512)
	add(kindTensor, start+12288, 1<<63-512)
	require.NoError(t, c.mappings.ebpf.Put(key(1<<62), binary.NativeEndian.AppendUint64(nil, math.MaxUint64)))
	require.NoError(t, c.mappings.ebpf.Put(key(1<<61), binary.NativeEndian.AppendUint64(nil, maxExtent)))

	all, err := c.lays(func(uint64) bool { return true })
	require.NoError(t, err)
	require.Len(t, all[7].areas, 2)
	require.Len(t, all[7].blocks, 1)
	require.Equal(t, map[owner]uint64{{}: 1<<20 - 4096}, fragments(all[7].areas, all[7].blocks))
}

// Inspektor Gadget would wait for ever for an error of Start.
func TestAFailedStartEndsTheRun(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "none")
	i := &instance{cuts: &cuts{}}
	require.NoError(t, i.Start(gc))
	require.ErrorIs(t, gc.Context().Err(), context.Canceled)
	require.NoError(t, i.Stop(gc))
	require.ErrorContains(t, i.PostStop(gc), "trace PyTorch's pools: map")
	require.NoError(t, i.PostStop(gc), "reported once")
	require.NoError(t, i.Close(gc))
}
