// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"sort"
)

// Process identifies a process image: a pid alone is reused.
type Process struct {
	PID        uint32
	StartTicks uint64
	Image      uint32
}

// Process is the journal's process image.
func (h *Header) Process() Process { return Process{h.PID, h.StartTicks, h.Image} }

func (p Process) less(q Process) bool {
	if p.PID != q.PID {
		return p.PID < q.PID
	}
	if p.StartTicks != q.StartTicks {
		return p.StartTicks < q.StartTicks
	}
	return p.Image < q.Image
}

// Key identifies the owner of bytes. Frees count for the tag, kind and device of the
// allocation that they end, regardless of the caller.
type Key struct {
	Process Process
	Tag     uint64
	Kind    Kind
	Device  int32
}

// Sums are counts since the process began. Bytes are as requested.
type Sums struct {
	AllocBytes, AllocObjects       uint64
	FreedBytes, FreedObjects       uint64
	ImplicitBytes, ImplicitObjects uint64
	PeakBytes                      uint64 // the most that was in use at one time
	HeldBytes                      uint64 // of those in use: Held
	Failed, OOMs                   uint64 // failed calls; of these, out of memory
}

// InUseBytes are the bytes that are still held.
func (s *Sums) InUseBytes() uint64 { return s.AllocBytes - s.FreedBytes - s.ImplicitBytes }

// InUseObjects is how many allocations are still held.
func (s *Sums) InUseObjects() uint64 { return s.AllocObjects - s.FreedObjects - s.ImplicitObjects }

func (s *Sums) alloc(size uint64) {
	s.AllocBytes += size
	s.AllocObjects++
	s.PeakBytes = max(s.PeakBytes, s.InUseBytes())
}

func (s *Sums) free(t Type, size uint64) {
	if t == Implicit {
		s.ImplicitBytes += size
		s.ImplicitObjects++
		return
	}
	s.FreedBytes += size
	s.FreedObjects++
}

func (s *Sums) fail(result int32) {
	s.Failed++
	if result == OutOfMemory {
		s.OOMs++
	}
}

// Total is one process image.
type Total struct {
	Process Process
	Comm    string
	Calls   uint64 // driver calls of the table, failed ones too
	Lost    uint64 // records that are missing from these sums
	Sums           // without contexts, which are in Rows only
}

// Summary is the result of Summarize.
type Summary struct {
	Rows   map[Key]*Sums
	Totals []Total // in the order of the journals
}

// Summarize adds up journals. Failed calls count for the caller's tag, the kind of the
// API and the device of the thread's context. It fails if a journal is inconsistent,
// which is a bug of the simulated driver.
func Summarize(journals []*Journal) (*Summary, error) {
	s := &Summary{Rows: map[Key]*Sums{}}
	for _, j := range journals {
		total := Total{Process: j.Process(), Comm: j.Comm, Lost: j.Lost}
		type held struct {
			key      Key
			size     uint64
			released bool
		}
		live := map[uint64]held{}
		for i := range j.Records {
			r := &j.Records[i]
			if r.Type == Work || r.Type == Collective { // neither holds anything
				continue
			}
			if r.Flags&First != 0 {
				total.Calls++
			}
			key := Key{total.Process, r.Tag, r.Kind, r.Device}
			switch r.Type {
			case Alloc:
				s.row(key).alloc(r.Size)
				if r.Kind != Context {
					total.alloc(r.Size)
				}
				live[r.Seq] = held{key: key, size: r.Size}
			case Free, Implicit:
				h, ok := live[r.AllocSeq]
				if !ok || h.size != r.Size || h.key.Kind != r.Kind || h.key.Device != r.Device {
					return nil, fmt.Errorf("journal of pid %d: record %d ends allocation %d, which is not held like that", j.PID, r.Seq, r.AllocSeq)
				}
				delete(live, r.AllocSeq)
				s.row(h.key).free(r.Type, r.Size)
				if h.released {
					s.row(h.key).HeldBytes -= r.Size
				}
				if r.Kind != Context {
					total.free(r.Type, r.Size)
				}
			case Held:
				h, ok := live[r.AllocSeq]
				if !ok || h.released {
					return nil, fmt.Errorf("journal of pid %d: record %d releases allocation %d, which is not held", j.PID, r.Seq, r.AllocSeq)
				}
				h.released = true
				live[r.AllocSeq] = h
				s.row(h.key).HeldBytes += r.Size
			default:
				if r.Result != Success {
					s.row(key).fail(r.Result)
					total.fail(r.Result)
				}
			}
		}
		s.Totals = append(s.Totals, total)
	}
	return s, nil
}

func (s *Summary) row(k Key) *Sums {
	r := s.Rows[k]
	if r == nil {
		r = &Sums{}
		s.Rows[k] = r
	}
	return r
}

// Keys are the rows' keys, sorted.
func (s *Summary) Keys() []Key {
	keys := make([]Key, 0, len(s.Rows))
	for k := range s.Rows {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := keys[i], keys[j]
		switch {
		case a.Process != b.Process:
			return a.Process.less(b.Process)
		case a.Tag != b.Tag:
			return a.Tag < b.Tag
		case a.Kind != b.Kind:
			return a.Kind < b.Kind
		}
		return a.Device < b.Device
	})
	return keys
}
