// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// spans keeps the sums of a process whole. Rows of ended spans are removed while the
// process runs (operators/decode/reap), but a counter must never fall.
type spans struct {
	reading int
	rows    map[profile.RowID]*spanRow
	sums    map[profile.RowID]profile.Row // of removed rows, by process, kind and device
}

type spanRow struct {
	row  profile.Row // as last read
	seen int         // in which reading
}

// missedRows is the number of readings in which a row may be missing: an iteration over a
// kernel table that changes meanwhile may miss it.
const missedRows = 10

func newSpans() *spans {
	return &spans{rows: map[profile.RowID]*spanRow{}, sums: map[profile.RowID]profile.Row{}}
}

// see adds one row of a reading.
func (s *spans) see(id profile.RowID, row profile.Row) {
	if id.Span != 0 {
		s.rows[id] = &spanRow{row, s.reading}
	}
}

// forgotten ends the reading and returns rows that represent removed ones.
func (s *spans) forgotten(ended func(profile.Process) bool) []profile.Row {
	var all []profile.Row
	for id, r := range s.rows {
		switch missed := s.reading - r.seen; {
		case missed == 0:
		case ended(r.row.Process):
			delete(s.rows, id)
		case missed < missedRows:
			all = append(all, r.row)
		default:
			delete(s.rows, id)
			key := profile.RowID{Process: id.Process, Kind: id.Kind, Device: id.Device}
			sum := r.row
			sum.PeakBytes = 0 // peaks were not at the same time
			sum.Values = sum.Values.Add(s.sums[key].Values)
			s.sums[key] = sum
		}
	}
	s.reading++
	for key, row := range s.sums {
		if ended(row.Process) {
			delete(s.sums, key)
			continue
		}
		all = append(all, row)
	}
	return all
}
