// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// spans keeps the sums of a process whole. Rows of ended spans are removed while the
// process runs, and rows of calls that have not changed for long (operators/decode/reap), but a
// counter must never fall. A row is a profile.Row of memory or a Sample of calls.
type spans[row any] struct {
	// isAll: rows without a span are removed as well.
	isAll   bool
	reading int
	rows    map[profile.RowID]*spanRow[row]
	sums    map[Series]row // of removed rows
	// series is what a row is added to, add the sum of two rows of one series.
	series func(row) Series
	add    func(removed, sum row) row
	// fell reports whether a row began again at zero: a counter of it has fallen.
	fell func(before, now row) bool
}

type spanRow[row any] struct {
	row  row // as last read
	now  row // in this reading, so far
	seen int // in which reading
}

// missedRows is the number of readings in which a row may be missing: an iteration over a
// kernel table that changes meanwhile may miss it.
const missedRows = 10

func newSpans[row any](series func(row) Series, add func(removed, sum row) row, fell func(before, now row) bool) *spans[row] {
	return &spans[row]{rows: map[profile.RowID]*spanRow[row]{}, sums: map[Series]row{}, series: series, add: add, fell: fell}
}

func newMemorySpans() *spans[profile.Row] {
	return newSpans(func(r profile.Row) Series { return Series{Process: r.Process, Kind: r.Kind, Device: r.Device} },
		func(removed, sum profile.Row) profile.Row {
			removed.PeakBytes = 0 // peaks were not at the same time
			removed.Values = removed.Values.Add(sum.Values)
			return removed
		},
		func(before, now profile.Row) bool {
			return now.AllocObjects < before.AllocObjects || now.FreedObjects < before.FreedObjects
		})
}

// MemorySpans does so for a gadget on another node. It is for one goroutine at a time.
type MemorySpans struct{ spans *spans[profile.Row] }

// NewMemorySpans returns it without rows.
func NewMemorySpans() *MemorySpans { return &MemorySpans{newMemorySpans()} }

// See adds one row of a reading.
func (s *MemorySpans) See(id profile.RowID, row profile.Row) { s.spans.see(id, row) }

// Removed ends the reading and returns rows for Run.Rows that represent those that were removed.
func (s *MemorySpans) Removed(ended func(profile.Process) bool) []profile.Row {
	return s.spans.forgotten(ended)
}

func newCallSpans() *spans[Sample] {
	s := newSpans(func(s Sample) Series { return s.Series },
		func(removed, sum Sample) Sample {
			removed.Sums = removed.Sums.add(sum.Sums)
			return removed
		},
		func(before, now Sample) bool { return now.Calls < before.Calls || now.Kernels < before.Kernels })
	s.isAll = true
	return s
}

// see adds one row of a reading. Several with the same id are one.
func (s *spans[row]) see(id profile.RowID, r row) {
	if id.Span == 0 && !s.isAll {
		return
	}
	known := s.rows[id]
	switch {
	case known == nil:
		s.rows[id] = &spanRow[row]{now: r, seen: s.reading}
	case known.seen == s.reading:
		known.now = s.add(known.now, r)
	default:
		known.now, known.seen = r, s.reading
	}
}

// forgotten ends the reading and returns rows that represent removed ones.
func (s *spans[row]) forgotten(ended func(profile.Process) bool) []row {
	var all []row
	for id, r := range s.rows {
		missed := s.reading - r.seen
		if missed == 0 && !s.fell(r.row, r.now) {
			r.row = r.now
			continue
		}
		series := s.series(r.now)
		switch {
		case missed == 0:
			s.sums[series] = s.add(r.row, s.sums[series])
			r.row = r.now
		case ended(series.Process):
			delete(s.rows, id)
		case missed < missedRows:
			all = append(all, r.row)
		default:
			delete(s.rows, id)
			s.sums[series] = s.add(r.row, s.sums[series])
		}
	}
	s.reading++
	for series, sum := range s.sums {
		if ended(series.Process) {
			delete(s.sums, series)
			continue
		}
		all = append(all, sum)
	}
	return all
}
