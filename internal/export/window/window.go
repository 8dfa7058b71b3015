// SPDX-License-Identifier: Apache-2.0

// Package window turns the cumulative rows that a gadget gives every second into windows
// of time. In a window, flows (allocated, freed, samples) are those within it, and levels
// (in use, peak) those at its end: the flows of all windows add up to the rows, and
// levels of different windows must not be added. What was in use at the
// peak (profile.Peaks) is from the moment in the window at which the process held the most on
// the device.
//
// A window ends with the first rows at or after its end, so rows are never split; windows
// that are not closed grow, and nothing is lost.
package window

import (
	"container/list"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// maxGone bounds the rows kept after the kernel has deleted them: at most about
	// 50 MB, with stacks of 40 frames shared between rows. Beyond, the tenants that have most lose their oldest ones.
	maxGone = 64 << 10
	// keepGone is the number of windows for which a missing row is kept: an iteration
	// over a kernel table that changes meanwhile may miss a row, which must not count
	// as new when it is read again.
	keepGone = 6
)

// Window has the rows from Start to End. The rows are sorted by their origin, so that
// the same rows give the same bytes.
type Window struct {
	Start, End time.Time
	Subject    profile.Subject
	Period     time.Duration // between samples; 0 for memory
	Rows       []profile.Row
}

// Recorder collects the rows of one data source. It must not be used concurrently.
type Recorder struct {
	// Tenant is whom a process belongs to; nil: all belong to one.
	Tenant func(profile.Process) procmaps.Tenant

	subject  profile.Subject
	period   time.Duration
	interval time.Duration

	start, next time.Time
	reading     uint64 // counts the readings
	rows        map[profile.RowID]*state
	peaks       profile.Peaks                            // of this window
	gone        throttle.Queues[procmaps.Tenant, *state] // the rows that are missing, the oldest first
	forgotten   int64
}

type state struct {
	row     profile.Row
	version uint64         // of the row's stack and labels
	seen    profile.Values // in the present reading
	sent    profile.Values // part of the windows so far
	reading uint64         // when it was last read
	id      profile.RowID
	tenant  procmaps.Tenant
	gone    *list.Element // of Recorder.gone; nil: it is there
	missing int           // the number of windows in which it was missing
	peak    profile.PeakRow
}

// NewRecorder starts the first window at start.
func NewRecorder(subject profile.Subject, period, interval time.Duration, start time.Time) *Recorder {
	return &Recorder{
		subject: subject, period: period, interval: interval,
		start: start, next: start.Add(interval), rows: map[profile.RowID]*state{}, gone: throttle.Queues[procmaps.Tenant, *state]{},
	}
}

// Begin starts a reading: See is called for every row of it, then End.
func (r *Recorder) Begin() { r.reading++ }

// See adds one row. version is that of its stack and its labels: it differs where these are others than
// before, from which on the row has them. full returns the row with its stack and is called for new rows and other versions only.
// Rows of one reading with the same id are one: before Linux 6.0 cuda_alloc has a row for
// each context in which a stack allocated.
func (r *Recorder) See(id profile.RowID, values profile.Values, version uint64, full func() profile.Row) {
	s := r.rows[id]
	if s == nil {
		s = &state{row: full(), id: id, version: version}
		if r.Tenant != nil {
			s.tenant = r.Tenant(s.row.Process)
		}
		r.rows[id] = s
	} else if s.version != version {
		row := full()
		s.row.Stack, s.row.Process.Labels, s.version = row.Stack, row.Process.Labels, version
	}
	r.back(s)
	if s.reading != r.reading {
		s.reading, s.seen = r.reading, profile.Values{}
	}
	s.seen = s.seen.Add(values)
}

// take stores the values in the row.
func (s *state) take(values profile.Values) {
	if restarted(s.row.Values, values) {
		// The kernel has deleted the row and created it again: its former counts
		// are kept for this window.
		s.sent = s.sent.Sub(s.row.Values)
	}
	s.row.Values = values
}

// restarted reports whether a counter has fallen, which it never does otherwise.
func restarted(before, now profile.Values) bool {
	return now.AllocObjects < before.AllocObjects || now.FreedObjects < before.FreedObjects ||
		now.Samples < before.Samples || now.Calls < before.Calls || now.Kernels < before.Kernels
}

// Restart means that all counters have restarted at zero, because the gadget was
// restarted. Their former counts are kept for this window; the new rows do not include
// memory that was in use before.
func (r *Recorder) Restart() {
	for _, s := range r.rows {
		s.sent = s.sent.Sub(s.row.Values)
		s.row.Values = profile.Values{}
	}
}

// End closes a reading.
func (r *Recorder) End() {
	for _, s := range r.rows {
		if s.reading == r.reading {
			s.take(s.seen)
		} else if s.gone == nil {
			r.leave(s)
		}
	}
	r.forget()
	if r.subject == profile.Memory {
		r.peaks.Read(time.Time{}, r.held)
	}
}

// held are the rows for the search of the peak: what is gone holds nothing.
func (r *Recorder) held(yield func(*profile.PeakRow, *profile.Row) bool) {
	for _, s := range r.rows {
		row := &s.row
		if s.gone != nil {
			gone := s.row
			gone.InuseBytes = 0
			row = &gone
		}
		if !yield(&s.peak, row) {
			return
		}
	}
}

// Forgotten is how many rows of exited processes did not fit; their last values
// are in no window.
func (r *Recorder) Forgotten() int64 { return r.forgotten }

// Due reports whether the window has reached its length.
func (r *Recorder) Due(now time.Time) bool { return !now.Before(r.next) }

// Close ends the window and begins the next one. Rows without any values are omitted.
func (r *Recorder) Close(now time.Time) Window {
	w := Window{Start: r.start, End: now, Subject: r.subject, Period: r.period}
	ids := make([]profile.RowID, 0, len(r.rows))
	for id := range r.rows {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, profile.RowID.Compare)
	for _, id := range ids {
		s := r.rows[id]
		flow := s.row.Values.Sub(s.sent)
		s.sent = s.row.Values
		// Levels are current, and rows that are gone hold nothing.
		flow.InuseBytes, flow.InuseObjects, flow.PeakBytes = s.row.InuseBytes, s.row.InuseObjects, s.row.PeakBytes
		flow.AtPeakBytes, s.peak.AtPeakBytes = s.peak.AtPeakBytes, 0
		if s.gone != nil {
			flow.InuseBytes, flow.InuseObjects = 0, 0
			if s.missing++; s.missing == keepGone {
				r.back(s)
				delete(r.rows, id)
			}
		}
		if hasValues(flow) {
			row := s.row
			row.Values = flow
			w.Rows = append(w.Rows, row)
		}
	}
	r.start = now
	r.peaks.Restart()
	// The next window ends on the schedule of the first, unless that has passed.
	if r.next = r.next.Add(r.interval); !r.next.After(now) {
		r.next = now.Add(r.interval)
	}
	return w
}

// hasValues reports whether a row is part of any profile.
func hasValues(flow profile.Values) bool {
	return flow.AllocObjects != 0 || flow.AllocBytes != 0 || flow.InuseBytes != 0 || flow.InuseObjects != 0 ||
		flow.AtPeakBytes != 0 ||
		flow.Samples != 0 || flow.Calls != 0 || flow.Kernels != 0
}
