// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"slices"
)

// silentReadings is after how many readings, about a minute, a process of another node ends that has
// only had allocations refused: it has no rows that could disappear.
const silentReadings = 60

// silence is how long nothing was heard of such a process.
type silence struct {
	readings int   // since its last failure
	failed   int64 // the ordinal of that
}

// isUnseen reports whether a process has only had allocations refused, so that nothing shows when
// it ends.
func (r *Run) isUnseen(p *process) bool { return r.isRemote && !p.inRows }

// isSilent is called once in each reading. It reports whether a process counts as ended because
// nothing was heard of it any more.
func (r *Run) isSilent(p *process) bool {
	if !r.isUnseen(p) {
		return false
	}
	p.readings++
	return p.readings >= silentReadings
}

// heard is called for each failure. Readings may not come for long, so that processes are bounded here, too.
func (r *Run) heard(p *process, isNew bool) {
	if !r.isUnseen(p) {
		return
	}
	r.order++
	p.silence = silence{failed: r.order}
	if isNew {
		r.refused++
	}
	if r.refused > maxEnded/4 {
		r.forget()
	}
}

// forget drops the oldest processes when too many wait for a reader: those that have ended, and
// those that have only had allocations refused.
func (r *Run) forget() {
	r.refused = 0
	var waiting []*process
	for _, p := range r.processes {
		if p.ended != 0 || r.isUnseen(p) {
			waiting = append(waiting, p)
		}
	}
	if len(waiting) <= maxEnded {
		return
	}
	slices.SortFunc(waiting, func(a, b *process) int { return cmp.Compare(max(a.ended, a.failed), max(b.ended, b.failed)) })
	for _, p := range waiting[:len(waiting)-maxEnded] {
		r.drop(p)
		r.store.forgotten++
	}
}

func (r *Run) drop(p *process) {
	delete(r.processes, p.info.ID)
	if !r.isUnseen(p) {
		r.done[p.info.ID] = true
	}
}
