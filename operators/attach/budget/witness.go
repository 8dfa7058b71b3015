// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// witness measures how much less the traced threads get done while they are probed. A
// trap is charged with what it takes in a loop, with the processor's caches warm; between
// stretches of a program's own work it takes several times as long. So now and then a few
// of the functions that are followed in windows, those that cost least, are probed alone
// for a while: a weighing. How often they are called then, against how often in windows,
// is the factor by which calls in windows count for more, be it that threads fall behind,
// that they have time left, or that they spin.
type witness struct {
	apis           []uint32
	windows, alone rate
	busy           busy
	hits           map[uint32]float64 // in weighings, since the last look
	last           float64            // the factor that was known last; 0: none was
}

// rate sums calls of the witness and their time, over windows or weighings; older ones
// count less and less.
type rate struct {
	count                                   int
	n, calls, charged, seconds              float64
	calls2, callsTimesSeconds, secondsTwice float64 // squares and products, for the deviation
}

// busy is the CPU time of the traced threads with the witness probed, against that without, just before:
// what the probes took and the threads did not take in addition, they took from the program's own work. A thread
// that waits for its next turn has the time.
type busy struct{ ran, seconds, probedRan, probedSeconds, charged float64 }

// add takes a weighing: CPU times, and what probes were charged with, in seconds.
func (b *busy) add(ran, seconds, probedRan, probedSeconds, charged float64) {
	for _, sum := range []*float64{&b.ran, &b.seconds, &b.probedRan, &b.probedSeconds, &b.charged} {
		*sum *= fade
	}
	b.ran, b.seconds = b.ran+ran, b.seconds+seconds
	b.probedRan, b.probedSeconds, b.charged = b.probedRan+probedRan, b.probedSeconds+probedSeconds, b.charged+charged
}

// part is how much of what the witness's probes take is missing from the threads' own work, from 0 to 1;
// 1 where it is not known.
func (b *busy) part() float64 {
	if b.seconds == 0 || b.charged == 0 {
		return 1
	}
	more := b.probedRan/b.probedSeconds - b.ran/b.seconds
	return min(max(1-more/(b.charged/b.probedSeconds), 0), 1)
}

const (
	// control is how long the threads are watched without any probes, before a weighing.
	control = 50 * time.Millisecond
	// weighing is how long the witness is probed alone, and settling how long before that
	// the probes of a window have to be detached: threads are slow for about 15 ms after them.
	weighing, settling = 100 * time.Millisecond, 25 * time.Millisecond
	// warming is how long they are slow after new probes.
	warming = 10 * time.Millisecond
	// weighingTakes is how long it is, with attaching and detaching.
	weighingTakes = 230 * time.Millisecond
	// weighSoon weighings are weighOften apart, then they take weighPart of the budget, and
	// are between weighOften and weighSeldom apart.
	weighSoon               = 10
	weighOften, weighSeldom = time.Second, 10 * time.Second
	weighPart               = 0.2
	// light is the part of all cost that the witness may have; where no function has so
	// little, the one with least may have heavy.
	light, heavy = 0.15, 0.5
	// fade is the weight of a window when the next is known.
	fade = 0.995
	// enough windows and weighings, with so many calls, make an estimate, if its standard
	// deviation is below precise.
	enough, enoughCalls = 4, 20
	precise             = 0.15
)

// choose takes the functions of least cost, whose costs full has, unless those that were
// chosen before are still followed in windows.
func (w *witness) choose(apis []uint32, full map[uint32]float64) {
	if len(w.apis) > 0 && !slices.ContainsFunc(w.apis, func(api uint32) bool { return !slices.Contains(apis, api) }) {
		return
	}
	*w = witness{hits: map[uint32]float64{}, last: w.last}
	var all, part float64
	for _, api := range apis {
		all += full[api]
	}
	for _, api := range slices.SortedFunc(slices.Values(apis), func(a, b uint32) int {
		return cmp.Or(cmp.Compare(full[a], full[b]), cmp.Compare(a, b))
	}) {
		part += full[api]
		if part > light*all && (len(w.apis) > 0 || part > heavy*all) {
			break
		}
		w.apis = append(w.apis, api)
	}
}

// add takes a window or a weighing; charged in ns.
func (r *rate) add(calls, charged, seconds float64) {
	for _, sum := range []*float64{&r.n, &r.calls, &r.charged, &r.seconds, &r.calls2, &r.callsTimesSeconds, &r.secondsTwice} {
		*sum *= fade
	}
	r.count++
	r.n++
	r.calls, r.charged, r.seconds = r.calls+calls, r.charged+charged, r.seconds+seconds
	r.calls2, r.callsTimesSeconds, r.secondsTwice = r.calls2+calls*calls, r.callsTimesSeconds+calls*seconds, r.secondsTwice+seconds*seconds
}

func (r *rate) known() bool { return r.count >= enough && r.calls >= enoughCalls }

// perSecond is the rate of calls and its standard deviation, as of a ratio of two sums
// (Cochran, Sampling Techniques, 2.11).
func (r *rate) perSecond() (calls, deviation float64) {
	calls = r.calls / r.seconds
	squares := r.calls2 - 2*calls*r.callsTimesSeconds + calls*calls*r.secondsTwice
	return calls, math.Sqrt(max(squares, 0)*r.n/max(r.n-1, 1)) / r.seconds
}

// factor is how much more gets done without probes than in a window, with its standard
// deviation as a part of it. Where it is not known at present, but was, it is taken to be the
// same, and not to be known well.
func (w *witness) factor() (f, deviation float64, known bool) {
	if f, deviation, known = w.measured(); known && deviation <= precise {
		w.last = f
		return f, deviation, true
	}
	return max(w.last, leastFactor), unknownDoubt / 2, w.last > 0
}

// measured is the factor by the windows and weighings so far. What the witness itself takes in a weighing is
// accounted for: where a thread always runs, a call then takes 1/alone = T + s C, and in a window
// 1/windows = T + C, where s is what is charged for it in a weighing against a window; where it has time
// left in weighings, 1/alone = T. What lies between is known to a quarter.
func (w *witness) measured() (f, deviation float64, known bool) {
	if !w.windows.known() || !w.alone.known() || w.windows.charged == 0 {
		return 1, 0, false
	}
	s := w.alone.charged / w.alone.calls / (w.windows.charged / w.windows.calls)
	if s > heavy {
		return 1, 0, false
	}
	in, inDeviation := w.windows.perSecond()
	out, outDeviation := w.alone.perSecond()
	taken := max(s/in-s/out, 0) / (1 - s) // of a call, where the thread always runs
	own := 1/out - w.busy.part()*taken
	f = 1 / in / max(own, 1/in/mostFactor)
	relative := math.Hypot(inDeviation/in*(1+s*f/(1-s)), outDeviation/out*f*in/out/(1-s))
	return max(f, leastFactor), math.Hypot(relative, taken/4/max(own, 1/in/mostFactor)), true
}

// every is how often weighings are due; full has what functions take of a thread, as a
// multiple of the budget.
func (w *witness) every(full map[uint32]float64, perBudget float64) time.Duration {
	var share float64
	for _, api := range w.apis {
		share += full[api]
	}
	if w.alone.count < weighSoon {
		return weighOften
	}
	return min(max(time.Duration(float64(weighing)*share*perBudget/weighPart), weighOften), weighSeldom)
}

// takeOut moves what weighings have cost from the functions to an entry of its own, so that
// the rest is what windows have cost.
func (w *witness) takeOut(s *seen) {
	for api, hits := range w.hits {
		if all := s.hits[api]; all > 0 {
			part := s.ns[api] * min(hits/all, 1)
			s.ns[api] -= part
			s.ns[weighings] += part
		}
	}
	w.hits = map[uint32]float64{}
}
