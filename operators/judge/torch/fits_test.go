// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

func areaOf(start, size uint64) area {
	return area{start * mib, (start + size) * mib, size == 2, false, 0}
}

func pieceOf(start, size uint64) area {
	return area{start * mib, (start + size) * mib, size == 2, true, noDevice}
}

func blockOf(start, size uint64, device int32) block {
	return block{start * mib, (start + size) * mib, device, owner{}}
}

func TestGapsThatASizeFitsInto(t *testing.T) {
	areas := func() []area {
		return []area{areaOf(100, 20), pieceOf(0, 20), areaOf(200, 2), areaOf(120, 20), pieceOf(20, 20)}
	}
	blocks := func() []block {
		return []block{
			blockOf(120, 20, 1),                 // its neighbour is another segment
			blockOf(110, 2, 1),                  // in the middle: 10 and 8
			blockOf(4, 6, 0), blockOf(14, 8, 0), // the second lies in two pieces: 4, 4, 18
			{200 * mib, 201 * mib, 0, owner{}}, // of a small segment
			blockOf(900, 3, 1),                 // of no segment that was seen
			blockOf(50, 1, 0),                  // between two
		}
	}
	require.Equal(t, map[int32]fit{
		0: {usable: 26 * mib, largest: 18 * mib, held: 42 * mib, used: 16 * mib, outside: 1 * mib},
		1: {usable: 18 * mib, largest: 10 * mib, held: 40 * mib, used: 25 * mib, outside: 3 * mib},
	}, fitting(areas(), blocks(), 4*mib))
	require.Equal(t, map[int32]fit{
		0: {usable: 18 * mib, largest: 18 * mib, held: 42 * mib, used: 16 * mib, outside: 1 * mib},
		1: {usable: 10 * mib, largest: 10 * mib, held: 40 * mib, used: 25 * mib, outside: 3 * mib},
	}, fitting(areas(), blocks(), 9*mib))
	// Small blocks have segments of their own.
	require.Equal(t, fit{usable: 1 * mib, largest: 1 * mib, held: 42 * mib, used: 16 * mib, larger: 26 * mib, outside: 1 * mib}, fitting(areas(), blocks(), 1*mib)[0])
	require.Equal(t, map[int32]fit{0: {empty: 42 * mib}, noDevice: {empty: 40 * mib}}, fitting(areas(), nil, mib))
	require.Empty(t, fitting(nil, nil, mib))
}

// Segments that another allocator maps side by side are none of them a part of another.
func TestOnlyPiecesOfExpandableSegmentsAreJoined(t *testing.T) {
	require.Len(t, joined([]area{pieceOf(0, 20), pieceOf(20, 20), pieceOf(40, 20)}), 1)
	require.Len(t, joined([]area{pieceOf(0, 2), pieceOf(2, 2), pieceOf(4, 2)}), 1)
	require.Len(t, joined([]area{pieceOf(0, 64), pieceOf(64, 64), pieceOf(128, 20)}), 3)
	require.Len(t, joined([]area{pieceOf(0, 20), pieceOf(20, 2)}), 2)
}

func TestWhatAPoolCouldUse(t *testing.T) {
	p := totalsOf{allocated: 600 * mib, reserved: 1000 * mib, out: 900 * mib, back: 300 * mib}
	usable, known := p.usable(fit{usable: 30 * mib, held: 900 * mib}, 64*mib)
	require.True(t, known)
	require.EqualValues(t, (30+100)*mib, usable, "segments without a block are given back")
	usable, _ = p.usable(fit{usable: 390 * mib, held: 900 * mib}, 64*mib)
	require.EqualValues(t, 400*mib, usable, "never more than is unused")
	usable, _ = p.usable(fit{usable: 30 * mib, held: 900 * mib}, 128*mib)
	require.EqualValues(t, 30*mib, usable, "they are too few")

	_, known = p.usable(fit{outside: 7 * mib}, mib)
	require.False(t, known, "they lie in segments from before attach")
	p.before, p.back = 100*mib, 400*mib // of these, 100 were allocated before attach
	_, known = p.usable(fit{}, mib)
	require.True(t, known)
	p.out -= 10 * mib
	_, known = p.usable(fit{}, mib)
	require.False(t, known, "10 MiB in use are from before attach")
	_, known = totalsOf{}.usable(fit{}, mib)
	require.True(t, known)
}
