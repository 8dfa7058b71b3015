// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"cmp"
	"slices"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// smallestBlock of PyTorch's pool, in bytes: each is a multiple of it.
const smallestBlock = 512

// area is memory that the driver gave: a segment, or a piece that is mapped into an
// expandable one. end is the first byte behind it.
type area struct {
	start, end uint64
	isSmall    bool
	isPiece    bool  // neighbours are one
	device     int32 // noDevice: not known, as of pieces
}

const noDevice = -1

// block is a part of an area that PyTorch has allocated.
type block struct {
	start, end uint64
	device     int32
	owner      owner
}

// fit is how a pool of one device is cut up, in bytes.
type fit struct {
	usable  uint64 // in gaps that the size fits into
	largest uint64 // of all gaps that a block of the size may be put into
	held    uint64 // of areas with a block in them
	used    uint64 // of blocks
	larger  uint64 // in gaps of segments for larger blocks, where the size is a small one's
	empty   uint64 // of areas without a block; they may not be PyTorch's
	outside uint64 // of blocks that lie in no area that was seen
}

// fitting finds the gaps between the blocks of one process, by device. Both lists are
// sorted in place.
func fitting(areas []area, blocks []block, size uint64) map[int32]fit {
	slices.SortFunc(areas, func(a, b area) int { return cmp.Compare(a.start, b.start) })
	slices.SortFunc(blocks, func(a, b block) int { return cmp.Compare(a.start, b.start) })
	areas = joined(areas)
	found := map[int32]fit{}
	next := 0
	for _, a := range areas {
		for ; next < len(blocks) && blocks[next].start < a.start; next++ {
			found[blocks[next].device] = found[blocks[next].device].lost(blocks[next])
		}
		first := next
		for next < len(blocks) && blocks[next].start < a.end {
			next++
		}
		if first < next {
			device := blocks[first].device
			found[device] = found[device].with(a, blocks[first:next], size)
		} else {
			f := found[a.device]
			f.empty += a.end - a.start
			found[a.device] = f
		}
	}
	for _, b := range blocks[next:] {
		found[b.device] = found[b.device].lost(b)
	}
	return found
}

// joined makes one area of pieces that lie side by side, as those of an expandable segment. Allocators that replace
// PyTorch's cudaMalloc also map memory, each a segment of its own, mostly of another size.
func joined(areas []area) []area {
	var all []area
	last := uint64(0) // the size of the last piece
	for _, a := range areas {
		size := a.end - a.start
		n := len(all)
		if n > 0 && all[n-1].isPiece && a.isPiece && all[n-1].end == a.start && size == last && (size == profile.SmallSegment || size == profile.LargePiece) {
			all[n-1].end = a.end
			continue
		}
		all = append(all, a)
		last = size
	}
	return all
}

func (f fit) lost(b block) fit {
	f.outside += b.end - b.start
	f.used += b.end - b.start
	return f
}

// with adds the gaps of an area, whose blocks these are.
func (f fit) with(a area, blocks []block, size uint64) fit {
	f.held += a.end - a.start
	for _, b := range blocks {
		f.used += b.end - b.start
	}
	isForOthers := a.isSmall != (size <= profile.SmallBlock)
	at := a.start
	gap := func(to uint64) {
		if to <= at {
			return
		}
		if isForOthers {
			if !a.isSmall {
				f.larger += to - at
			}
			return // those of a small segment are too small for a large block
		}
		f.largest = max(f.largest, to-at)
		if to-at >= size {
			f.usable += to - at
		}
	}
	for _, b := range blocks {
		gap(b.start)
		at = max(at, b.end)
	}
	gap(a.end)
	return f
}

// totalsOf returns the totals in a row of a pool.
type totalsOf struct{ allocated, reserved, out, back, before uint64 }

// totalsFields are those that totalsFrom reads.
var totalsFields = []string{"allocated_bytes", "reserved_bytes", "out_bytes", "back_bytes", "before_bytes"}

func totalsFrom(from map[string]datasource.FieldAccessor, d datasource.Data) totalsOf {
	number := func(name string) uint64 {
		n, _ := from[name].Uint64(d)
		return n
	}
	return totalsOf{
		allocated: number("allocated_bytes"), reserved: number("reserved_bytes"),
		out: number("out_bytes"), back: number("back_bytes"), before: number("before_bytes"),
	}
}

// usable is how many of the unused bytes a block of the size could use: those of gaps that
// it fits into, and those of segments without a block, which the pool gives back to the
// driver to make room, where they come to the size. False: more than a hundredth of the
// blocks, or of what they lie in, is from before attach.
func (p totalsOf) usable(f fit, size uint64) (uint64, bool) {
	if left(p.atAttach(), p.before) > p.allocated/100 || f.outside > p.allocated/100 {
		return 0, false
	}
	unused := p.reserved - min(p.reserved, p.allocated)
	idle := p.reserved - min(p.reserved, f.held)
	if idle < size {
		idle = 0
	}
	return min(unused, f.usable+idle), true
}
