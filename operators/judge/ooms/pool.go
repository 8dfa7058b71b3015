// SPDX-License-Identifier: Apache-2.0

package ooms

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Pool has the bytes of a device that PyTorch had reserved, and those that it had allocated of them.
type Pool struct {
	AllocatedBytes, ReservedBytes uint64
	Unused                        Unused
	// Refused is the driver's function that refused the process last before, since the
	// pool refused; "": none did, though the driver is what a pool asks first.
	Refused string
	// RefusedBytes is how much that was requested of.
	RefusedBytes uint64
	// By is who refused there: the driver, or a library in front of it.
	By string
}

// Unused are the bytes that a pool did not use, by reason, from the operator torch. All 0: unknown.
type Unused struct{ PiecesBytes, LargerBytes, ApartBytes, KeptBytes uint64 }

// expandableAPI is the function that expandable segments call, for one piece at a time: of profile.SmallSegment for small
// tensors, else of profile.LargePiece. Allocators that replace the pool's cudaMalloc by it, such as torch_memory_saver,
// request whole segments.
const expandableAPI = "cuMemCreate"

// allocator is how a pool asks the driver for memory.
type allocator int

const (
	segments   allocator = iota // as it does by itself
	expandable                  // pieces of expandable segments
	replaced                    // by another library, which makes the segments
	unknown                     // one of the last two
)

// allocator follows from what was refused on the way to a request. A segment of 2 or 20 MiB may also be that of a smaller
// request without expandable segments.
func (p Pool) allocator(requested uint64) allocator {
	switch {
	case p.Refused != expandableAPI:
		return segments
	case p.RefusedBytes == profile.LargePiece && p.RefusedBytes < requested:
		return expandable
	case p.RefusedBytes != profile.SmallSegment && p.RefusedBytes != profile.LargePiece && p.RefusedBytes >= requested:
		return replaced
	}
	return unknown
}

// why says what a request failed of, as far as the two totals prove it; "" for a pool
// that had nothing reserved.
func (p Pool) why(requested uint64) string {
	if p.ReservedBytes == 0 {
		return ""
	}
	unused := p.ReservedBytes - min(p.AllocatedBytes, p.ReservedBytes)
	text := fmt.Sprintf("PyTorch's pool uses %s of its %s", size(p.AllocatedBytes), size(p.ReservedBytes))
	switch {
	case p.Refused == "":
		return text + ", and the driver was not seen to refuse: it may be the pool's own limit (set_per_process_memory_fraction)"
	case unused < requested:
		return text + ", and the driver had no more" + p.limit()
	case p.Unused == Unused{}:
		larger := ""
		if requested <= profile.SmallBlock {
			larger = "segments for larger tensors, in "
		}
		// Segments without a block in use had been returned before, except those of private pools.
		return text + fmt.Sprintf(": the %s that it does not use are in %s%s, or kept for other streams or CUDA graphs", size(unused), larger, p.pieces(requested, true))
	}
	parts := []part{
		{p.Unused.PiecesBytes, "in " + p.pieces(requested, p.Unused.PiecesBytes >= requested)},
		{p.Unused.LargerBytes, "in segments for larger tensors, which small ones may not use"},
		{p.Unused.KeptBytes, "kept in segments without a tensor, as CUDA graphs and other private pools do"},
		{p.Unused.ApartBytes, "in pieces that are large enough, for another stream or of a private pool"},
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.bytes, a.bytes) })
	var said []string
	for _, part := range parts {
		if part.bytes > unused/100 {
			said = append(said, size(part.bytes)+" are "+part.is)
		}
	}
	return text + ": " + strings.Join(said, "; ")
}

// limit says whose decision the driver's was.
func (p Pool) limit() string {
	if profile.ErrorBy("", p.By) == "" {
		return ""
	}
	return " by the limit of " + p.By
}

// part is one of what a pool does not use.
type part struct {
	bytes uint64
	is    string
}

// pieces names fragmentation, and what is made for it where that is all that a request failed of: not for a small tensor,
// which has segments of its own.
func (p Pool) pieces(requested uint64, advise bool) string {
	advise = advise && requested > profile.SmallBlock
	const text = "pieces that are too small"
	how := p.allocator(requested)
	switch {
	case how == expandable:
		return text + ", though expandable segments are on"
	case advise && how == segments:
		return text + " (fragmentation; expandable segments or max_split_size_mb of PYTORCH_CUDA_ALLOC_CONF are made for that)"
	case advise && how == replaced:
		return text + " (fragmentation; max_split_size_mb of PYTORCH_CUDA_ALLOC_CONF is made for that)"
	}
	return text
}
