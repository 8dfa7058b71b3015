// SPDX-License-Identifier: Apache-2.0

// Package snapshot writes what one process holds as PyTorch's memory snapshot, which
// torch.cuda.memory._dump_snapshot() writes, so that its viewer (pytorch.org/memory_viz,
// torch/cuda/_memory_viz.py) and what else reads the format can show memory that PyTorch
// does not know, and did not have to record.
//
// A segment is memory that the driver allocated; pieces that are mapped side by side are one, as
// PyTorch has them. Its blocks are PyTorch's tensors and the gaps between them. A segment
// that is not PyTorch's is one block. The trace has the allocations that are alive, each at
// its time: what was freed is in no live table.
package snapshot

import (
	"cmp"
	"io"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Allocation is one that is alive.
type Allocation struct {
	Address, Size uint64
	// Requested has the bytes that the program wanted of Size; 0: not known.
	Requested uint64
	// Device is negative where it is not known.
	Device int32
	At     time.Time
	Stack  stack.Stack
	// StackID is the same for allocations of the same stack.
	StackID uint64
	// IsTensor: a block of PyTorch's pool, in memory that is another allocation.
	IsTensor bool
	// IsPiece: mapped by itself; neighbours are one segment.
	IsPiece bool
	// IsUnplaced: it has no address of the device's, as arrays and physical memory that is
	// mapped nowhere; Address is ignored.
	IsUnplaced bool
	// IsOther: PyTorch's caching allocator does not request such memory, as managed.
	IsOther bool
}

// Pool has what PyTorch says of its pool on one device, in bytes: Reserved from the driver, of which
// Allocated are in tensors.
type Pool struct{ Reserved, Allocated uint64 }

// unplaced is where what has no address is put: behind all addresses of processes, and where
// the viewer's numbers are still exact (2⁵³).
const unplaced = 1 << 48

// Snapshot of a process.
type Snapshot struct {
	segments []*segment
	traces   [][]event // by device
	// IsSampled: some tensors were not followed, so that none are shown.
	IsSampled bool
	// Bytes are the sizes of the segments, and of the blocks in them that are in use.
	Bytes, ActiveBytes uint64
}

type segment struct {
	device     int32
	start, end uint64
	pieces     []Allocation // by address
	blocks     []block
	active     uint64
	requested  uint64 // of active
	isPool     bool   // PyTorch's allocator requested it
}

type block struct {
	start, size uint64
	of          *Allocation // nil: a gap
}

// requested is the size where it is not known what the program wanted, and of a gap.
func (b *block) requested() uint64 {
	if b.of == nil || b.of.Requested == 0 {
		return b.size
	}
	return min(b.of.Requested, b.size)
}

type event struct {
	action string
	at     time.Time
	of     *Allocation
	start  uint64
	size   uint64
}

// New lays out the allocations of one process. isSampled: tensors are estimates, of which
// nothing can be laid out. pools are those of PyTorch by device, as far as they are known. It keeps
// the allocations.
func New(all []Allocation, isSampled bool, pools map[int32]Pool) *Snapshot {
	s := &Snapshot{IsSampled: isSampled}
	var tensors, areas []Allocation
	free := uint64(unplaced)
	for _, a := range all {
		if a.Size == 0 {
			continue
		}
		if a.IsUnplaced {
			a.Address = free
			free += a.Size
		}
		if a.IsTensor {
			tensors = append(tensors, a)
		} else {
			areas = append(areas, a)
		}
	}
	byAddress := func(a, b Allocation) int { return cmp.Compare(a.Address, b.Address) }
	slices.SortStableFunc(tensors, byAddress)
	slices.SortStableFunc(areas, byAddress)
	s.segments = segmentsOf(areas)
	if isSampled || !s.place(tensors) {
		s.IsSampled, s.segments, tensors = true, segmentsOf(areas), nil
	}
	// What is in use of a pool is known: its tensors, or that it has none.
	isKnown := func(device int32) bool {
		pool, ok := pools[device]
		return len(tensors) > 0 || ok && pool.Allocated == 0
	}
	reserved := map[int32]uint64{}
	for device, pool := range pools {
		if isKnown(device) {
			reserved[device] = pool.Reserved
		}
	}
	s.takeSilent(reserved)
	for _, seg := range s.segments {
		seg.fill(isKnown(seg.device))
		s.Bytes += seg.size()
		s.ActiveBytes += seg.active
	}
	s.addTraces()
	return s
}

// segmentsOf joins pieces that lie side by side.
func segmentsOf(areas []Allocation) (all []*segment) {
	var last *segment
	for _, a := range areas {
		isNext := last != nil && a.IsPiece && last.pieces[0].IsPiece && last.end == a.Address && last.pieces[0].Device == a.Device
		if !isNext {
			last = &segment{device: a.Device, start: a.Address, end: a.Address}
			all = append(all, last)
		}
		last.pieces = append(last.pieces, a)
		last.end += a.Size
		last.isPool = last.isPool || isOfPool(a.Stack)
	}
	return all
}

// place puts the tensors into their segments. A tensor whose segment was allocated before
// the gadget attached has a separate one. False: they overlap, so they are not what they seem.
func (s *Snapshot) place(tensors []Allocation) bool {
	segments, at, end := s.segments, 0, uint64(0)
	for i := range tensors {
		t := &tensors[i]
		if t.Address < end {
			return false
		}
		end = t.Address + t.Size
		for at < len(segments) && segments[at].end <= t.Address {
			at++
		}
		if at == len(segments) || t.Address < segments[at].start {
			s.segments = append(s.segments, &segment{device: t.Device, start: t.Address, end: end, isPool: true,
				blocks: []block{{t.Address, t.Size, t}}})
			continue
		}
		seg := segments[at]
		if end > seg.end {
			return false
		}
		if seg.device < 0 {
			seg.device = t.Device
		}
		seg.blocks = append(seg.blocks, block{t.Address, t.Size, t})
	}
	slices.SortFunc(s.segments, func(a, b *segment) int { return cmp.Compare(a.start, b.start) })
	return true
}

// fill makes the blocks cover the segment. PyTorch's memory without a tensor is cached, if
// it is known what is in use; other memory is in use.
func (seg *segment) fill(isKnown bool) {
	seg.device = max(seg.device, 0) // the viewer has no place for an unknown device
	var all []block
	at := seg.start
	for _, b := range seg.blocks {
		if at < b.start {
			all = append(all, block{start: at, size: b.start - at})
		}
		all = append(all, b)
		seg.active += b.size
		seg.requested += b.requested()
		at = b.start + b.size
	}
	switch {
	case len(seg.blocks) == 0 && !(seg.isPool && isKnown):
		for i := range seg.pieces {
			p := &seg.pieces[i]
			all = append(all, block{p.Address, p.Size, p})
			seg.active += p.Size
			seg.requested += p.Size
		}
	case at < seg.end:
		all = append(all, block{start: at, size: seg.end - at})
	}
	seg.blocks = all
}

// addTraces makes the events of what is alive, in the order of time; a segment's before
// those of its blocks.
func (s *Snapshot) addTraces() {
	devices := int32(-1)
	for _, seg := range s.segments {
		devices = max(devices, seg.device)
	}
	s.traces = make([][]event, devices+1)
	for _, seg := range s.segments {
		of := &s.traces[seg.device]
		var begun time.Time
		for i := range seg.pieces {
			p := &seg.pieces[i]
			action := "segment_alloc"
			if p.IsPiece {
				action = "segment_map"
			}
			*of = append(*of, event{action, p.At, p, p.Address, p.Size})
			if p.At.After(begun) {
				begun = p.At
			}
		}
		for _, b := range seg.blocks {
			if b.of == nil {
				continue
			}
			at := b.of.At
			if at.Before(begun) { // within the call that requested the segment
				at = begun
			}
			*of = append(*of, event{"alloc", at, b.of, b.start, b.size})
		}
	}
	for _, of := range s.traces {
		slices.SortStableFunc(of, func(a, b event) int { return a.at.Compare(b.at) })
	}
}

// Write writes it as a pickle. The same allocations give the same bytes.
func (s *Snapshot) Write(to io.Writer) error {
	p := newPickler(to)
	p.dict(
		item{"segments", func() { p.list(len(s.segments), func(n int) { p.segment(s.segments[n]) }) }},
		item{"device_traces", func() {
			p.list(len(s.traces), func(n int) {
				p.list(len(s.traces[n]), func(at int) { p.event(&s.traces[n][at]) })
			})
		}},
		// What PyTorch has its configuration in; the viewer shows it as it is.
		item{"allocator_settings", func() {
			p.dict(p.str("written_by", "ig-gpu"), p.is("tensors_are_sampled", s.IsSampled))
		}},
	)
	return p.end()
}

func (p *pickler) segment(seg *segment) {
	kind := "large"
	if seg.size() <= profile.SmallSegment {
		kind = "small"
	}
	var first *Allocation
	if len(seg.pieces) > 0 {
		first = &seg.pieces[0]
	}
	p.dict(p.num("device", uint64(seg.device)), p.num("address", seg.start), p.num("total_size", seg.size()),
		p.num("allocated_size", seg.active), p.num("active_size", seg.active), p.num("requested_size", seg.requested),
		p.num("stream", 0), p.str("segment_type", kind), p.is("is_expandable", first != nil && first.IsPiece), p.frames(first),
		item{"blocks", func() { p.list(len(seg.blocks), func(n int) { p.block(&seg.blocks[n]) }) }})
}

func (p *pickler) block(b *block) {
	state := "inactive"
	if b.of != nil {
		state = "active_allocated"
	}
	p.dict(p.num("address", b.start), p.num("size", b.size), p.num("requested_size", b.requested()), p.str("state", state), p.frames(b.of))
}

func (p *pickler) event(e *event) {
	p.dict(p.str("action", e.action), p.num("addr", e.start), p.num("size", e.size), p.num("stream", 0),
		p.num("time_us", uint64(max(e.at.UnixMicro(), 0))), p.frames(e.of))
}

// framesOf is the key of a stack's list of frames.
type framesOf struct{ id uint64 }

// frames are innermost first, as PyTorch has them. What joins Python and native frames is
// left out.
func (p *pickler) frames(a *Allocation) item {
	return item{"frames", func() {
		if a == nil {
			p.op(opEmptyList)
			return
		}
		p.once(framesOf{a.StackID}, func() {
			frames := slices.DeleteFunc(slices.Clone(a.Stack), func(f stack.Frame) bool { return f.Kind == stack.KindTrampoline })
			p.list(len(frames), func(n int) {
				f := frames[n]
				p.dict(p.str("filename", f.File), p.num("line", uint64(f.Line)), p.str("name", f.Function))
			})
		})
	}}
}
