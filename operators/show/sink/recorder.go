// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// maxGone bounds the rows remembered of what the kernel has forgotten. With
// stacks of 40 frames shared between rows that is about 50 MB at worst.
const maxGone = 64 << 10

// recorder remembers the latest state of every row. The kernel forgets the rows
// of a process some time after it exited; what they allocated stays part of the
// recording, but nothing of it is in use any more.
type recorder struct {
	at       time.Time
	interval int
	rows     map[profile.RowID]*recorded
	gone     int
	// forgotten counts rows that did not fit; their values are lost.
	forgotten int
}

type recorded struct {
	row      profile.Row
	interval int // when it was seen last
	gone     bool
	// What had been counted when the row was taken out of the kernel's map and began
	// again, as happens to samples that have not changed for long; and since then.
	before, counted profile.Values
}

// begin starts an interval: every row of it is given to see, then end is called.
func (r *recorder) begin(at time.Time) {
	r.at = at
	r.interval++
	if r.rows == nil {
		r.rows = map[profile.RowID]*recorded{}
	}
}

// see takes in one row. full makes the row with its stack and is called for new
// rows only. It returns the row and whether it is new or has changed.
func (r *recorder) see(id profile.RowID, values profile.Values, full func() profile.Row) (profile.Row, bool) {
	have := r.rows[id]
	isNew := have == nil
	if isNew {
		have = &recorded{row: full()}
		r.rows[id] = have
	}
	if have.gone {
		have.gone = false
		r.gone--
	}
	have.interval = r.interval
	if values.Samples < have.counted.Samples || values.Calls < have.counted.Calls {
		have.before = have.before.Add(have.counted)
	}
	have.counted = values
	values = values.Add(have.before)
	changed := isNew || have.row.Values != values
	have.row.Values = values
	return have.row, changed
}

// end closes the rows that this interval did not have, and returns those that
// changed by that.
func (r *recorder) end() []profile.Row {
	var changed []profile.Row
	for id, have := range r.rows {
		if have.gone || have.interval == r.interval {
			continue
		}
		if r.gone >= maxGone {
			delete(r.rows, id)
			r.forgotten++
			continue
		}
		have.gone = true
		r.gone++
		if v := &have.row.Values; v.InuseObjects != 0 || v.InuseBytes != 0 {
			v.ImplicitBytes += v.InuseBytes
			v.ImplicitObjects += v.InuseObjects
			v.InuseBytes, v.InuseObjects = 0, 0
			changed = append(changed, have.row)
		}
	}
	return profile.New(r.at, changed).Rows
}

// profile is everything recorded so far.
func (r *recorder) profile() *profile.Profile {
	rows := make([]profile.Row, 0, len(r.rows))
	for _, have := range r.rows {
		rows = append(rows, have.row)
	}
	return profile.New(r.at, rows)
}
