// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

const stackBytes, symbolBytes = 64, 40

// stacksAndSymbols: rows name stacks 1000 + i, which name symbol 2000 + i; places name
// the first symbol only.
func stacksAndSymbols(t *testing.T, size, stacks, rows int) Maps {
	if os.Geteuid() != 0 {
		t.Skip("making eBPF maps needs root")
	}
	maps := Maps{
		Processes: newMap(t, 8, 32, 64),
		State:     []*ebpf.Map{newMap(t, 24, 72, 8)},
		Rows:      []*ebpf.Map{newMap(t, 24, 64, 1024)},
		Stacks:    newMap(t, 8, stackBytes, uint32(size)),
		Symbols:   newMap(t, 8, symbolBytes, uint32(size)),
		Places:    newMap(t, 24, 56, 8),
	}
	for i := range uint64(stacks) {
		require.NoError(t, maps.Stacks.Put(key(8, 1000+i), key(stackBytes, 7, 2000+i)))
		require.NoError(t, maps.Symbols.Put(key(8, 2000+i), key(symbolBytes, 0, i)))
	}
	for i := range uint64(rows) {
		require.NoError(t, maps.Rows[0].Put(key(24, 1, 1000+i), key(64)))
	}
	require.NoError(t, maps.Places.Put(key(24, 1, 2, 3), key(56, 2000)))
	return maps
}

func sweepPass(t *testing.T, r *Reaper) (sum Result) {
	t.Helper()
	for {
		result, err := r.Pass(0)
		require.NoError(t, err)
		sum.Stacks += result.Stacks
		sum.Symbols += result.Symbols
		sum.Restored += result.Restored
		if r.swept == r.passes {
			return sum
		}
	}
}

func TestUnreferencedStacksAreRemoved(t *testing.T) {
	maps := stacksAndSymbols(t, 100, 80, 20)
	// An allocation names one that has no row.
	require.NoError(t, maps.State[0].Put(key(24, 1, 5), key(72, 0, 0, 1079)))
	maps.Passes = newMap(t, 16, 48, 8)
	require.NoError(t, maps.Passes.Put(key(16, 1, 5), key(48, 1078)))
	r := New(maps, 0)

	require.Zero(t, sweepPass(t, r), "what is not named may just be on its way")
	result := sweepPass(t, r)
	// From 80 down to half of 100; then the symbols that only they referenced.
	require.Equal(t, Result{Stacks: 30}, result)
	require.Equal(t, 50, entries(t, maps.Stacks))
	for i := range uint64(20) {
		_, err := maps.Stacks.LookupBytes(key(8, 1000+i))
		require.NoError(t, err)
	}
	value, err := maps.Stacks.LookupBytes(key(8, 1079))
	require.NoError(t, err)
	require.NotNil(t, value, "named by an allocation")
	value, err = maps.Stacks.LookupBytes(key(8, 1078))
	require.NoError(t, err)
	require.NotNil(t, value, "named by a backward pass")
	require.Equal(t, 80, entries(t, maps.Symbols), "what was removed is kept for a while, and names them")

	for range keptPasses/sweepEvery + unnamedSweeps {
		sweepPass(t, r)
	}
	require.Equal(t, 50, entries(t, maps.Symbols))
	value, err = maps.Symbols.LookupBytes(key(8, 2000))
	require.NoError(t, err)
	require.NotNil(t, value, "named by a place in the bytecode")
}

func TestStackThatIsNamedAgainIsRestored(t *testing.T) {
	maps := stacksAndSymbols(t, 100, 80, 0)
	want := map[uint64][]byte{}
	require.NoError(t, mapiter.Entries(maps.Stacks, func(key, value []byte) {
		want[binary.NativeEndian.Uint64(key)] = append([]byte(nil), value...)
	}))
	r := New(maps, 0)
	sweepPass(t, r)
	require.Equal(t, 30, sweepPass(t, r).Stacks)
	var gone uint64
	for id := range want {
		if _, err := maps.Stacks.LookupBytes(id); err != nil {
			t.Fatal(err)
		} else if b, _ := maps.Stacks.LookupBytes(id); b == nil {
			gone = id
		}
	}
	require.NotZero(t, gone)
	require.NoError(t, maps.Rows[0].Put(key(24, 1, gone), key(64)))
	require.Equal(t, 1, sweepPass(t, r).Restored)
	value, err := maps.Stacks.LookupBytes(gone)
	require.NoError(t, err)
	require.Equal(t, want[gone], value)
}

// What was removed is bounded, and does not keep more from being removed for long.
func TestTheOldestKeptStacksGoFirst(t *testing.T) {
	const big = maxKept / 100
	s := sweeper{kept: map[uint64]*keptEntry{}}
	keep := func(id uint64, pass int) bool {
		if !s.makeRoom(pass, big) {
			return false
		}
		s.kept[id] = &keptEntry{value: make([]byte, big), pass: pass}
		s.order = append(s.order, keptID{id, pass})
		s.bytes += big
		return true
	}
	for id := range uint64(100) {
		require.True(t, keep(id, int(id/10)))
	}
	require.False(t, keep(100, leastPasses-1), "the oldest may still be needed")
	s.drop(0) // as restored
	require.True(t, keep(0, leastPasses-1))
	for id := range uint64(9) {
		require.True(t, keep(100+id, leastPasses), "%d", id)
		require.LessOrEqual(t, s.bytes, maxKept)
	}
	require.False(t, keep(109, leastPasses))
	require.NotNil(t, s.kept[0], "it was kept again later")
	require.Nil(t, s.kept[9])
	require.NotNil(t, s.kept[10])
}

func TestMapWithRoomIsLeftAlone(t *testing.T) {
	maps := stacksAndSymbols(t, 100, 50, 0)
	r := New(maps, 0)
	for range 5 {
		require.Zero(t, sweepPass(t, r))
	}
	require.Equal(t, 50, entries(t, maps.Stacks))
}

// Processes that end after a few calls, as quickly as ever: their stacks never take the room that
// new ones need.
func TestStacksOfEndedProcessesAreRemovedInTime(t *testing.T) {
	maps := stacksAndSymbols(t, 1000, 0, 0)
	maps.Processes, maps.Rows[0] = newMap(t, 8, 32, 1024), newMap(t, 24, 64, 8192)
	r := New(maps, grace)
	most := 0
	for pass := range uint64(150) {
		now := (pass + 1) * uint64(interval)
		require.NoError(t, maps.Processes.Put(key(8, 1+pass), key(32, 0, 0, 0, now)))
		for i := range uint64(40) {
			stack := 1000 + 40*pass + i
			require.NoError(t, maps.Stacks.Put(key(8, stack), key(stackBytes, 7)), "pass %d: %d stacks", pass, entries(t, maps.Stacks))
			require.NoError(t, maps.Rows[0].Put(key(24, 1+pass, stack), key(64)))
		}
		most = max(most, entries(t, maps.Stacks))
		_, err := r.Pass(time.Duration(now))
		require.NoError(t, err)
	}
	require.Less(t, most, 750, "of the last quarter a tenant gets less")
	require.Greater(t, most, 500)
}

// Rows that only count go when room is scarce, those first that have not changed for
// longest, and never one that changes.
func TestIdleRowsAreRemoved(t *testing.T) {
	maps := stacksAndSymbols(t, 1024, 0, 800)
	maps.Counting = maps.Rows[0]
	maps.Windows = newMap(t, 24, 8, 1024)
	for i := range uint64(700) {
		require.NoError(t, maps.Windows.Put(key(24, 1, 1000+i), key(8)))
	}
	r := New(maps, 0)
	touch := func(pass int) {
		for i := range uint64(400) {
			require.NoError(t, maps.Rows[0].Put(key(24, 1, 1000+i), key(64, uint64(pass))))
		}
		if pass == 3 { // idle, but not as long as the others
			for i := range uint64(100) {
				require.NoError(t, maps.Rows[0].Put(key(24, 1, 1700+i), key(64, 1)))
			}
		}
	}
	idle := 0
	for pass := range idlePasses + 3 {
		touch(pass + 1)
		result, err := r.Pass(0)
		require.NoError(t, err)
		if pass < idlePasses {
			require.Zero(t, result.Idle)
		}
		idle += result.Idle
	}
	require.Equal(t, 200, idle, "a quarter; 600 of 1024 are fewer than five eighths")
	require.Equal(t, 600, entries(t, maps.Rows[0]))
	for _, i := range []uint64{0, 399, 700, 799} {
		value, err := maps.Rows[0].LookupBytes(key(24, 1, 1000+i))
		require.NoError(t, err)
		require.NotNil(t, value, "row %d", i)
	}
	for i := range uint64(700) { // the others had none
		row, err := maps.Rows[0].LookupBytes(key(24, 1, 1000+i))
		require.NoError(t, err)
		window, err := maps.Windows.LookupBytes(key(24, 1, 1000+i))
		require.NoError(t, err)
		require.Equal(t, row == nil, window == nil, "windows of row %d", i)
	}
}

// Names of kernels stay while a row or a handle of a running process has them.
func TestUnreferencedKernelNamesAreRemoved(t *testing.T) {
	maps := stacksAndSymbols(t, 100, 1, 1)
	maps.Kernels, maps.Handles = newMap(t, 8, 64, 100), newMap(t, 16, 8, 100)
	for i := range uint64(80) {
		require.NoError(t, maps.Kernels.Put(key(8, 5000+i), key(64, 1)))
	}
	require.NoError(t, maps.Processes.Put(key(8, 1), key(32)))
	require.NoError(t, maps.Processes.Put(key(8, 2), key(32, 0, 0, 0, 1))) // has ended
	require.NoError(t, maps.Rows[0].Put(key(24, 1, 1000, 5000), key(64)))
	require.NoError(t, maps.Handles.Put(key(16, 1, 7), key(8, 5001)))
	require.NoError(t, maps.Handles.Put(key(16, 2, 7), key(8, 5002)))
	r := New(maps, 0)
	removed := 0
	for range 4 * sweepEvery {
		result, err := r.Pass(time.Hour)
		require.NoError(t, err)
		removed += result.Kernels
	}
	require.Equal(t, 30, removed, "half of the map stays")
	for _, kernel := range []uint64{5000, 5001} {
		value, err := maps.Kernels.LookupBytes(key(8, kernel))
		require.NoError(t, err)
		require.NotNil(t, value)
	}
	require.Equal(t, 1, entries(t, maps.Handles), "those of ended processes are removed")
}
