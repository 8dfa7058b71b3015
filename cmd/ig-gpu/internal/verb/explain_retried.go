// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ooms"
)

// askingLine is a line of a process that requests memory of one GPU, or of any where that is unknown: of a context from before
// the watch it is.
type askingLine struct {
	pid    uint32
	device int32
	where  string
}

// retry follows a line whose requests the driver refused between two readings of the rows. Allocators such as XLA's BFC and
// CuPy's ask again, or for less, within milliseconds: a program does not see these refusals.
type retry struct {
	line askingLine
	// The bytes that the line had allocated in total, at the last reading, and those that its process held on the GPU, at the
	// reading before the refusal.
	allocated, held int64
	heldThen        int64 // at the refusal
	isRead          bool  // there was a reading after
	isGiven         bool  // the line allocated memory after the refusal
}

// retries are those of all refusals of GPU memory by the driver. The zero value is ready.
type retries struct {
	open  map[askingLine]*retry // since the last reading
	later []*retry              // of earlier ones, without memory until now
	of    map[int]*retry        // by refusal
}

// refused records a refusal, the nth.
func (t *retries) refused(n int, r *ooms.Failure, rows *peakFacts) {
	if r.IsHost || r.API == profile.PoolAPI {
		return
	}
	if t.open == nil {
		t.open, t.of = map[askingLine]*retry{}, map[int]*retry{}
	}
	line := askingLine{r.PID, r.Device, r.Frame}
	one := t.open[line]
	if one == nil {
		one = &retry{line: line}
		one.allocated, one.held = rows.allocatedBy(line)
		t.open[line] = one
	}
	one.heldThen = int64(r.InuseBytes)
	t.of[n] = one
}

// read takes in a reading of the rows.
func (t *retries) read(rows *peakFacts) {
	for _, one := range t.open {
		t.later = append(t.later, one)
	}
	clear(t.open)
	t.later = slices.DeleteFunc(t.later, func(one *retry) bool {
		allocated, _ := rows.allocatedBy(one.line)
		more := allocated - one.allocated
		if !one.isRead { // some of it may be from before the refusal
			more -= max(one.heldThen-one.held, 0)
		}
		one.isRead, one.allocated, one.isGiven = true, allocated, more > 0
		return one.isGiven
	})
}

// allocatedBy returns the bytes that a line has allocated in total, and those that its process holds on the GPU.
func (p *peakFacts) allocatedBy(line askingLine) (allocated, held int64) {
	for _, known := range p.rows {
		r := &known.row
		if r.Process.PID != line.pid || r.Layer() != profile.Driver || r.Kind == profile.KindHost {
			continue
		}
		if r.Device == line.device || r.Device < 0 || line.device < 0 {
			held += r.InuseBytes
		}
		if (r.Device == line.device || line.device < 0) && known.where == line.where {
			allocated += r.AllocBytes
		}
	}
	return allocated, held
}

// wasGivenLater reports whether the line of a refusal allocated memory there later, and its process lives.
func (f *facts) wasGivenLater(n int) bool {
	one := f.refused.retries.of[n]
	if one == nil {
		return false
	}
	_, hasEnded := f.ended[one.line.pid]
	return !hasEnded && one.isGiven && f.peaks.heldBy(one.line.pid) > 0
}
