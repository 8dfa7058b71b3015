// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnusedBytesAreDividedByWhatBlocksHold(t *testing.T) {
	keeper, other := owner{stack: 1}, owner{stack: 2}
	blocks := []block{
		{0, 6, 0, keeper}, {6, 8, 0, other}, // 8 of 20 used
		{100, 104, 0, keeper}, // 4 of 20
		{300, 320, 0, other},  // all of 20
		{395, 410, 0, keeper}, // 5 of one piece, 10 of the next
	}
	areas := []area{
		{start: 0, end: 20}, {start: 100, end: 120}, {start: 200, end: 220}, {start: 300, end: 320},
		{start: 380, end: 400, isPiece: true}, {start: 400, end: 420, isPiece: true},
	}
	require.Equal(t, map[owner]uint64{keeper: 9 + 16 + 15 + 10, other: 3}, fragments(areas, blocks))
}

// TestFragmentsAddUpToUnusedBytes of areas with a block in them, for any owners.
func TestFragmentsAddUpToUnusedBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var areas []area
		var blocks []block
		var want uint64
		for at := uint64(1 << 40); len(areas) < 1+r.IntN(8); at += 1 << 30 {
			a := area{start: at, end: at + 1 + r.Uint64N(1<<29)}
			areas = append(areas, a)
			used := uint64(0)
			for from := a.start; from < a.end && r.IntN(4) > 0; {
				from += r.Uint64N(a.end - from)
				end := from + 1 + r.Uint64N(a.end-from)
				if end > a.end {
					break
				}
				blocks = append(blocks, block{from, end, 0, owner{stack: r.Uint64N(5), span: r.Uint64N(2)}})
				used += end - from
				from = end
			}
			if used > 0 {
				want += a.end - a.start - used
			}
		}
		r.Shuffle(len(blocks), func(a, b int) { blocks[a], blocks[b] = blocks[b], blocks[a] })
		var have uint64
		for _, bytes := range fragments(areas, blocks) {
			have += bytes
		}
		require.Equal(t, want, have)
	}
}
