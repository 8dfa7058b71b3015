// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// mostCandidates limits the segments of which every choice is tested: 2¹² of them.
const mostCandidates = 12

// isOfPool reports whether PyTorch's caching allocator requested the memory.
func isOfPool(s stack.Stack) bool {
	return slices.ContainsFunc(s, func(f stack.Frame) bool {
		return f.Kind == stack.KindNative && f.IsIn("libc10_cuda.so", "libc10_hip.so")
	})
}

// isSilent reports whether the stack does not say which library requested the memory: native frames
// end in the driver or the runtime. They do in calls from Python, of which only the driver's
// function and its caller are read, and where rules for unwinding were not read yet.
func isSilent(s stack.Stack) bool {
	end := slices.IndexFunc(s, func(f stack.Frame) bool { return f.Kind != stack.KindNative })
	if end < 0 {
		end = len(s)
	}
	return end == 0 || s[end-1].IsDriver()
}

func (seg *segment) size() uint64 { return seg.end - seg.start }

// mayBePools reports whether nothing says that the segment is not PyTorch's.
func (seg *segment) mayBePools() bool {
	return !slices.ContainsFunc(seg.pieces, func(p Allocation) bool { return p.IsUnplaced || p.IsOther || !isSilent(p.Stack) })
}

// takeSilent finds PyTorch's segments among those with silent stacks: with those that are known,
// they are what PyTorch has reserved on the device. It uses up `missing`, which has that.
func (s *Snapshot) takeSilent(missing map[int32]uint64) {
	candidates := map[int32][]*segment{}
	for _, seg := range s.segments {
		bytes, ok := missing[seg.device]
		switch isKnown := seg.isPool || len(seg.blocks) > 0; {
		case !ok:
		case isKnown && (len(seg.pieces) == 0 || seg.size() > bytes):
			delete(missing, seg.device) // not all that is reserved was seen, or it has changed
		case isKnown:
			missing[seg.device] -= seg.size()
		case seg.mayBePools():
			candidates[seg.device] = append(candidates[seg.device], seg)
		}
	}
	for device, bytes := range missing {
		for _, seg := range sumTo(candidates[device], bytes) {
			seg.isPool = true
		}
	}
}

// sumTo returns the segments that have so many bytes together; none where no choice has, or
// more than one.
func sumTo(all []*segment, bytes uint64) (found []*segment) {
	all = slices.DeleteFunc(all, func(seg *segment) bool { return seg.size() > bytes })
	if sums(all, bytes) {
		return all
	}
	if len(all) > mostCandidates {
		return nil
	}
	for set := 1; set < 1<<len(all); set++ {
		var some []*segment
		for n, seg := range all {
			if set>>n&1 != 0 {
				some = append(some, seg)
			}
		}
		if !sums(some, bytes) {
			continue
		}
		if found != nil {
			return nil
		}
		found = some
	}
	return found
}

// sums reports whether the segments have exactly so many bytes. Sizes may be any.
func sums(all []*segment, bytes uint64) bool {
	for _, seg := range all {
		if seg.size() > bytes {
			return false
		}
		bytes -= seg.size()
	}
	return bytes == 0
}
