// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"
	"time"
)

// waiting is how long each rank of a communicator waited for the others to come, over
// collectives that follow each other and that all ranks are known to have entered: from
// its own entry, or the last arrival at the one before, until the last rank came.
type waiting struct {
	began Time
	// In this period, and in the one before.
	now, before span
}

// span is a sum over collectives.
type span struct {
	total time.Duration
	ranks []time.Duration
}

// waitPeriod is what shares are of, at least; at most twice that.
const waitPeriod = Time(30e9)

// add takes one collective. last is when the last rank came to the one before; enter is when
// each rank came.
func (w *waiting) add(last Time, enter []Time) {
	end := slices.Max(enter)
	if end <= last {
		return // of another thread's, or clocks
	}
	if w.began == 0 {
		w.began = end
	}
	if end-w.began > waitPeriod {
		w.before, w.now, w.began = w.now, span{}, end
	}
	if len(w.now.ranks) != len(enter) {
		w.now = span{ranks: make([]time.Duration, len(enter))}
	}
	w.now.total += time.Duration(end - last)
	for i, t := range enter {
		w.now.ranks[i] += time.Duration(end - max(t, last))
	}
}

// share of one rank; -1: not known.
func (w *waiting) share(i int) float64 {
	total, sum := w.now.total, time.Duration(0)
	if i < len(w.now.ranks) {
		sum = w.now.ranks[i]
	}
	if len(w.before.ranks) == len(w.now.ranks) && i < len(w.before.ranks) {
		total, sum = total+w.before.total, sum+w.before.ranks[i]
	}
	if total <= 0 || i >= len(w.now.ranks) {
		return -1
	}
	return float64(sum) / float64(total)
}

// waitShare of a rank: of the time between collectives, how much it was in one that others
// had not come to. -1 unless all ranks are observed. It may do something else meanwhile, so
// it waited at most for so long.
func (m *member) waitShare() float64 {
	r := &m.comm.arrivals
	if m.comm.Size > len(r.ranks) || len(r.ranks) < 2 {
		return -1
	}
	i, found := slices.BinarySearch(r.ranks, m.Rank)
	if !found {
		return -1
	}
	return r.waiting.share(i)
}
