// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// owner is whose a block is: its row, within the process.
type owner struct {
	stack, span uint64
	device      int32
}

// fragments are the unused bytes of areas that have a block in them, by the owners of these
// blocks, in proportion to their bytes: the pool cannot return such an area to the driver while
// they hold a part of it. The sum is exact. Blocks are sorted in place.
func fragments(areas []area, blocks []block) map[owner]uint64 {
	areas = slices.Clone(areas)
	slices.SortFunc(areas, func(a, b area) int { return cmp.Compare(a.start, b.start) })
	slices.SortFunc(blocks, func(a, b block) int { return cmp.Compare(a.start, b.start) })
	found := map[owner]uint64{}
	next := 0
	for _, a := range areas { // pieces of an expandable segment are returned one by one
		for next < len(blocks) && blocks[next].end <= a.start {
			next++
		}
		used, shares := uint64(0), map[owner]uint64{}
		for n := next; n < len(blocks) && blocks[n].start < a.end; n++ {
			bytes := min(blocks[n].end, a.end) - max(blocks[n].start, a.start)
			used += bytes
			shares[blocks[n].owner] += bytes
		}
		if unused := a.end - a.start - min(used, a.end-a.start); unused > 0 && used > 0 {
			divide(unused, used, shares, found)
		}
	}
	return found
}

// divide adds to each owner its part of `unused`, where it has shares[owner] of `used`. What
// rounding leaves goes to the largest.
func divide(unused, used uint64, shares, to map[owner]uint64) {
	rest := unused
	for o, bytes := range shares {
		high, low := bits.Mul64(unused, bytes)
		part, _ := bits.Div64(high, low, used) // bytes ≤ used, as no block wraps: it fits
		to[o] += part
		rest -= part
	}
	largest := slices.MaxFunc(slices.Collect(maps.Keys(shares)), func(a, b owner) int {
		return cmp.Or(cmp.Compare(shares[a], shares[b]), cmp.Compare(a.stack, b.stack), cmp.Compare(a.span, b.span), cmp.Compare(a.device, b.device))
	})
	to[largest] += rest
}
