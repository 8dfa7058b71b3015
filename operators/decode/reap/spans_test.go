// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

func TestStacksReferencedOnlyBySpansStay(t *testing.T) {
	maps := stacksAndSymbols(t, 100, 80, 0)
	maps.Spans, maps.Idle = newMap(t, 32, 72, 1024), IdleAllocations
	for i := range uint64(80) {
		require.NoError(t, maps.Spans.Put(key(32, 1, 1000+i, 0, 9), spanRow(1, 0)))
	}
	r := New(maps, 0)
	for range 3 * unnamedSweeps {
		require.Zero(t, sweepPass(t, r))
	}
	require.Equal(t, 80, entries(t, maps.Stacks))
}

// Spans start and end by the thousand while their process runs: what was requested of PyTorch's pool goes with their rows.
func TestRequestsOfARowGoWithIt(t *testing.T) {
	made, _ := setUp(t, 100)
	found := map[string]*ebpf.Map{
		processesMap: made.Processes, "live_by_pointer": made.State[0], "rows_by_stack": made.Rows[0],
		spansMap: newMap(t, 32, 72, 8), requestsMap: newMap(t, 32, 16, 8),
	}
	maps := FindMaps(func(name string) *ebpf.Map { return found[name] })
	reaper := New(maps, grace)
	put := func(span, alloc, freed uint64) {
		require.NoError(t, found[spansMap].Put(key(32, 1, 5, 0, span), spanRow(alloc, freed)))
		require.NoError(t, found[requestsMap].Put(key(32, 1, 5, 0, span), key(16, alloc-freed)))
	}
	for span := range uint64(100) {
		put(1+span, 5, 5)
		if span%4 == 3 {
			_, err := reaper.Pass(time.Duration(span) * grace)
			require.NoError(t, err)
		}
	}
	put(1000, 5, 4)
	require.NoError(t, found[requestsMap].Put(key(32, 1, 5, 0, 0), key(16, 1)))
	for pass := range 3 {
		_, err := reaper.Pass(time.Duration(1000+pass) * grace)
		require.NoError(t, err)
	}
	for _, m := range []string{spansMap, requestsMap} {
		value, err := found[m].LookupBytes(key(32, 1, 5, 0, 1000))
		require.NoError(t, err)
		require.NotNil(t, value, "%s: it has a block", m)
	}
	value, err := found[requestsMap].LookupBytes(key(32, 1, 5, 0, 0))
	require.NoError(t, err)
	require.NotNil(t, value, "of the row without a span")
	require.LessOrEqual(t, entries(t, found[requestsMap]), 1+entries(t, found[spansMap]))
}
