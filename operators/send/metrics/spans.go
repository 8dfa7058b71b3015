// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// spans keeps the sums of a process whole. Rows of ended spans are removed while the
// process runs (operators/decode/reap), but a counter must never fall. A row is a
// profile.Row of memory or a Sample of calls.
type spans[row any] struct {
	reading int
	rows    map[profile.RowID]*spanRow[row]
	sums    map[Series]row // of removed rows
	// series is what a row is added to, add the sum of two rows of one series.
	series func(row) Series
	add    func(removed, sum row) row
}

type spanRow[row any] struct {
	row  row // as last read
	seen int // in which reading
}

// missedRows is the number of readings in which a row may be missing: an iteration over a
// kernel table that changes meanwhile may miss it.
const missedRows = 10

func newSpans[row any](series func(row) Series, add func(removed, sum row) row) *spans[row] {
	return &spans[row]{rows: map[profile.RowID]*spanRow[row]{}, sums: map[Series]row{}, series: series, add: add}
}

func newMemorySpans() *spans[profile.Row] {
	return newSpans(func(r profile.Row) Series { return Series{Process: r.Process, Kind: r.Kind, Device: r.Device} },
		func(removed, sum profile.Row) profile.Row {
			removed.PeakBytes = 0 // peaks were not at the same time
			removed.Values = removed.Values.Add(sum.Values)
			return removed
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
	return newSpans(func(s Sample) Series { return s.Series },
		func(removed, sum Sample) Sample {
			removed.Sums = removed.Sums.add(sum.Sums)
			return removed
		})
}

// see adds one row of a reading.
func (s *spans[row]) see(id profile.RowID, r row) {
	if id.Span != 0 {
		s.rows[id] = &spanRow[row]{r, s.reading}
	}
}

// forgotten ends the reading and returns rows that represent removed ones.
func (s *spans[row]) forgotten(ended func(profile.Process) bool) []row {
	var all []row
	for id, r := range s.rows {
		series := s.series(r.row)
		switch missed := s.reading - r.seen; {
		case missed == 0:
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
