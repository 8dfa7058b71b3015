// SPDX-License-Identifier: Apache-2.0

// Package recording remembers the latest state of every row of a gadget.
package recording

import (
	"container/list"
	"iter"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// MaxGone bounds the rows remembered of what the kernel has forgotten. With
// stacks of 40 frames shared between rows that is about 50 MB at worst. Beyond it those
// tenants that have most lose their oldest ones.
const MaxGone = 64 << 10

// Recording remembers the latest state of every row. The kernel forgets the rows
// of a process some time after it exited; what they allocated stays part of the
// recording, but nothing of it is in use any more.
type Recording struct {
	// Tenant is whom a process belongs to; nil: all belong to one.
	Tenant func(pid uint32) procmaps.Tenant

	At        time.Time // of the latest interval
	began     time.Time // the first one
	interval  int
	rows      map[profile.RowID]*recorded
	processes map[uint64]*process                         // with rows
	peaks     profile.Peaks                               // of memory
	gone      throttle.Queues[procmaps.Tenant, *recorded] // rows that the kernel has forgotten, the oldest first
	// Forgotten counts rows that did not fit; their values are lost.
	Forgotten int
}

type process struct {
	tenant procmaps.Tenant
	rows   int
}

type recorded struct {
	id       profile.RowID
	row      profile.Row
	version  uint64 // of the row's stack and labels
	peak     profile.PeakRow
	process  *process
	interval int           // when it was seen last
	gone     *list.Element // of its tenant's; nil: the kernel has it
	// What had been counted when the row was taken out of the kernel's map and began
	// again, as happens to samples that have not changed for long; and since then.
	before, counted profile.Values
}

// Begin starts an interval: every row of it is given to See, then End is called.
func (r *Recording) Begin(at time.Time) {
	if r.At = at; r.began.IsZero() {
		r.began = at
	}
	r.interval++
	if r.rows == nil {
		r.rows, r.processes, r.gone = map[profile.RowID]*recorded{}, map[uint64]*process{}, throttle.Queues[procmaps.Tenant, *recorded]{}
	}
}

// See takes in one row. version is that of its stack and its labels: it differs where these are others
// than before. full makes the row with its stack and is called for new rows and other versions only.
// It returns the row and whether it is new or has changed.
func (r *Recording) See(id profile.RowID, values profile.Values, version uint64, full func() profile.Row) (row profile.Row, changed bool) {
	have := r.rows[id]
	if have == nil {
		changed = true
		have = &recorded{id: id, row: full(), version: version}
		have.process = r.process(have.row.Process)
		have.process.rows++
		r.rows[id] = have
	} else if have.version != version {
		have.version = version
		now := full()
		changed = now.Process.Labels != have.row.Process.Labels || !slices.Equal(now.Stack, have.row.Stack)
		have.row.Stack, have.row.Process.Labels = now.Stack, now.Process.Labels
	}
	r.back(have)
	have.interval = r.interval
	if values.Samples < have.counted.Samples || values.Calls < have.counted.Calls || values.Kernels < have.counted.Kernels {
		have.before = have.before.Add(have.counted)
	}
	have.counted = values
	values = values.Add(have.before)
	values.AtPeakBytes = have.peak.AtPeakBytes
	changed = changed || have.row.Values != values
	have.row.Values = values
	return have.row, changed
}

// Row is a row with its identity.
type Row struct {
	ID profile.RowID
	profile.Row
}

// End closes the rows that this interval did not have, and returns those that
// changed by that, by their identity.
func (r *Recording) End() []Row {
	var changed []Row
	for _, have := range r.rows {
		if have.gone != nil || have.interval == r.interval {
			continue
		}
		r.leave(have)
		if v := &have.row.Values; v.InuseObjects != 0 || v.InuseBytes != 0 {
			v.ImplicitBytes += v.InuseBytes
			v.ImplicitObjects += v.InuseObjects
			v.InuseBytes, v.InuseObjects, v.RoundingBytes, v.FragmentedBytes = 0, 0, 0, 0
			changed = append(changed, Row{have.id, have.row})
		}
	}
	r.forget()
	r.peaks.Read(r.At, r.memory())
	for known, row := range r.memory() {
		row.AtPeakBytes = known.AtPeakBytes
	}
	slices.SortFunc(changed, func(a, b Row) int { return a.ID.Compare(b.ID) })
	return changed
}

// memory are the rows that memory was ever allocated in.
func (r *Recording) memory() iter.Seq2[*profile.PeakRow, *profile.Row] {
	return func(yield func(*profile.PeakRow, *profile.Row) bool) {
		for _, have := range r.rows {
			if v := &have.row.Values; v.AllocBytes == 0 && v.InuseBytes == 0 && have.peak.AtPeakBytes == 0 {
				continue
			}
			if !yield(&have.peak, &have.row) {
				return
			}
		}
	}
}

// Peaks are the moments at which processes held the most.
func (r *Recording) Peaks() []profile.Peak { return r.peaks.All() }

// Profile is everything recorded so far, from the first to the latest interval.
func (r *Recording) Profile() *profile.Profile {
	rows := make([]profile.Row, 0, len(r.rows))
	for _, have := range r.rows {
		rows = append(rows, have.row)
	}
	p := profile.New(r.At, rows)
	p.Duration = r.At.Sub(r.began)
	for _, peak := range r.peaks.All() {
		p.Notes = append(p.Notes, peak.String())
	}
	return p
}

// Len is the number of rows, those of exited processes too.
func (r *Recording) Len() int { return len(r.rows) }

// Each calls on with every row, those of exited processes too, in no order.
func (r *Recording) Each(on func(id profile.RowID, row *profile.Row)) {
	for id, have := range r.rows {
		on(id, &have.row)
	}
}
