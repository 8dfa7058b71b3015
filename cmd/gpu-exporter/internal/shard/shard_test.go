// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Shard{"0/1": {0, 1}, "3/4": {3, 4}} {
		s, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, s)
		require.Equal(t, text, s.String())
	}
	for _, text := range []string{"", "4", "4/4", "-1/4", "0/0", "a/4", "0/4/4", "0/99999"} {
		_, err := Parse(text)
		require.ErrorIs(t, err, ErrSyntax, text)
	}
	require.True(t, Shard{}.Has("a"), "without shards, all are of the one exporter")
	require.True(t, Shard{}.Judges())
}

// TestEachNodeIsOfOneShard, shards are of about the same size, and a fifth one takes a fifth of
// the nodes from the others and moves no other.
func TestEachNodeIsOfOneShard(t *testing.T) {
	const nodes = 2000
	owner := func(name string, of int) int {
		found := -1
		for i := range of {
			if (Shard{i, of}).Has(name) {
				require.Equal(t, -1, found, "%s is of two shards", name)
				found = i
			}
		}
		require.GreaterOrEqual(t, found, 0, "%s is of none", name)
		return found
	}
	sizes, moved := make([]int, 4), 0
	for n := range nodes {
		name := fmt.Sprintf("gpu-node-%d", n)
		four, five := owner(name, 4), owner(name, 5)
		sizes[four]++
		if four != five {
			moved++
			require.Equal(t, 4, five)
		}
	}
	for _, size := range sizes {
		require.InDelta(t, nodes/4, size, nodes/20)
	}
	require.InDelta(t, nodes/5, moved, nodes/20)
}
