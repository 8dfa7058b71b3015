// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"testing"

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
