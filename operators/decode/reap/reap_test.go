// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

func newMap(t *testing.T, keySize, valueSize, entries uint32) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: keySize, ValueSize: valueSize, MaxEntries: entries})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func key(size int, words ...uint64) []byte {
	b := make([]byte, size)
	for i, w := range words {
		binary.NativeEndian.PutUint64(b[8*i:], w)
	}
	return b
}

func entries(t *testing.T, m *ebpf.Map) int {
	t.Helper()
	n, err := count(m)
	require.NoError(t, err)
	return n
}

// One running and one ended process, each with 9,000 pointers (more than two
// batches) and a few rows.
func setUp(t *testing.T, maxRows uint32) (Maps, *Reaper) {
	if os.Geteuid() != 0 {
		t.Skip("making eBPF maps needs root")
	}
	maps := Maps{
		Processes: newMap(t, 8, 32, 64),
		State:     []*ebpf.Map{newMap(t, 24, 72, 20000)},
		Rows:      []*ebpf.Map{newMap(t, 24, 64, maxRows)},
	}
	require.NoError(t, maps.Processes.Put(key(8, 1), key(32)))
	require.NoError(t, maps.Processes.Put(key(8, 2), key(32, 0, 0, 0, uint64(time.Second))))
	for i := range uint64(18000) {
		require.NoError(t, maps.State[0].Put(key(24, 1+i%2, i), key(72)))
	}
	for i := range uint64(6) {
		require.NoError(t, maps.Rows[0].Put(key(24, 1+i%2, i), key(64)))
	}
	return maps, New(maps, 10*time.Second)
}

func TestStateOfEndedProcessesIsRemovedAtOnce(t *testing.T) {
	maps, reaper := setUp(t, 100)
	result, err := reaper.Pass(2 * time.Second)
	require.NoError(t, err)
	require.Equal(t, Result{State: 9000}, result)
	require.Equal(t, 9000, entries(t, maps.State[0]))
	require.Equal(t, 6, entries(t, maps.Rows[0]), "rows stay while there is room")

	result, err = reaper.Pass(time.Hour)
	require.NoError(t, err)
	require.Zero(t, result, "a process is cleaned up after once")
}

func TestRowsOfEndedProcessesAreRemovedWhenTheMapIsNearlyFull(t *testing.T) {
	maps, reaper := setUp(t, 8)
	result, err := reaper.Pass(2 * time.Second)
	require.NoError(t, err)
	require.Zero(t, result.Rows, "within the grace they must stay readable")

	result, err = reaper.Pass(time.Minute)
	require.NoError(t, err)
	require.Equal(t, Result{Processes: 1, Rows: 3}, result)
	require.Equal(t, 3, entries(t, maps.Rows[0]))
	require.Equal(t, 1, entries(t, maps.Processes))
}

// A daemon's instance has no end: with a new process each second, rows would fill the
// maps, and each table would be as long.
func TestRowsOfEndedProcessesAreRemovedInADaemon(t *testing.T) {
	maps, _ := setUp(t, 100)
	maps.Forget = time.Minute
	reaper := New(maps, 10*time.Second)
	for _, at := range []time.Duration{2 * time.Second, 50 * time.Second} {
		result, err := reaper.Pass(at)
		require.NoError(t, err)
		require.Zero(t, result.Rows, at)
	}
	result, err := reaper.Pass(62 * time.Second)
	require.NoError(t, err)
	require.Equal(t, Result{Processes: 1, Rows: 3}, result)
	require.Equal(t, 3, entries(t, maps.Rows[0]))
	require.Equal(t, 1, entries(t, maps.Processes))
}

// Without its process, what a row of a span has not freed would be in use by no one, for good.
func TestRowsOfSpansGoWithTheirProcess(t *testing.T) {
	maps, _ := setUp(t, 100)
	maps.Spans, maps.Idle = newMap(t, 32, 72, 100), IdleAllocations
	require.NoError(t, maps.Spans.Put(key(32, 1, 5, 0, 9), spanRow(5, 0)))
	require.NoError(t, maps.Spans.Put(key(32, 2, 5, 0, 9), spanRow(5, 0)))
	maps.Forget = time.Minute
	reaper := New(maps, 10*time.Second)
	_, err := reaper.Pass(2 * time.Second)
	require.NoError(t, err)
	require.Equal(t, 2, entries(t, maps.Spans), "they are read a last time")
	result, err := reaper.Pass(62 * time.Second)
	require.NoError(t, err)
	require.Equal(t, Result{Processes: 1, Rows: 3, Spans: 1}, result)
	require.Equal(t, 1, entries(t, maps.Spans))
}

// Rows of spans: process 1 runs. Word 1 of a value has the allocations, word 3 the frees.
func spanRow(alloc, freed uint64) []byte { return key(72, 0, alloc, 0, freed) }

func TestIdleRowsOfSpansAreRemovedWhenTheMapIsNearlyFull(t *testing.T) {
	maps, _ := setUp(t, 100)
	maps.Spans, maps.Idle = newMap(t, 32, 72, 8), IdleAllocations
	reaper := New(maps, 10*time.Second)
	put := func(span, alloc, freed uint64) {
		require.NoError(t, maps.Spans.Put(key(32, 1, 0, 0, span), spanRow(alloc, freed)))
	}
	pass := func(at time.Duration) int {
		t.Helper()
		result, err := reaper.Pass(at)
		require.NoError(t, err)
		return result.Spans
	}
	for span := range uint64(4) {
		put(span, 5, 5)
	}
	require.Zero(t, pass(1*time.Second))
	require.Zero(t, pass(30*time.Second), "there is room")
	put(4, 5, 4) // holds something
	put(5, 5, 5) // has just ended
	put(0, 6, 6) // has changed since
	require.Equal(t, 3, pass(31*time.Second))
	require.Equal(t, 3, entries(t, maps.Spans))
	require.Zero(t, pass(time.Hour), "there is room again")

	put(6, 1, 1)
	put(7, 1, 0)
	require.Equal(t, 2, pass(2*time.Hour), "0 and 5 have waited, 6 has not")
	var value []byte
	for _, span := range []uint64{4, 6, 7} {
		require.NoError(t, maps.Spans.Lookup(key(32, 1, 0, 0, span), &value))
	}
}

func TestRowsOfSpansOfEndedProcessesAreRemovedFirst(t *testing.T) {
	maps, _ := setUp(t, 100)
	maps.Spans, maps.Idle = newMap(t, 32, 72, 8), IdleAllocations
	for span := range uint64(6) {
		require.NoError(t, maps.Spans.Put(key(32, 1+span%2, 0, 0, span), spanRow(5, 4)))
	}
	result, err := New(maps, 10*time.Second).Pass(time.Minute)
	require.NoError(t, err)
	require.Equal(t, 3, result.Spans)
	require.Equal(t, 3, entries(t, maps.Spans))
}
