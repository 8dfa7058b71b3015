// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"
	"time"
)

// waiting is how long each rank of a communicator waited for the others to arrive, over
// consecutive collectives that all ranks are known to have entered: from its own entry,
// or the last arrival at the previous one, until the last arrival.
type waiting struct {
	began Time
	// In this period, and in the previous one.
	now, before span
}

// span is a sum over collectives.
type span struct {
	total time.Duration
	ranks []time.Duration
}

// waitPeriod is the minimum period of shares; the maximum is twice that.
const waitPeriod = Time(30e9)

// add adds one collective. last is the last arrival at the previous one; enter is when each
// rank arrived.
func (w *waiting) add(last Time, enter []Time) {
	end := slices.Max(enter)
	if end <= last {
		return // an operation of another thread, or clocks differ
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

// share of one rank; -1: unknown.
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

// waitShare returns the share of time in which a rank was in a collective that others had
// not arrived at; -1 unless all ranks are observed. It may do other work meanwhile, so it
// is an upper bound.
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
