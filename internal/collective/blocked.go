// SPDX-License-Identifier: Apache-2.0

package collective

// blocked is the share of time in which a thread of a rank waits for one of its collectives, over a minute or so: a mean in
// which what was fades.
type blocked float64

// fading is after which time the share counts a third.
const fading = Time(60e9)

// add adds the time between two observations; isWaiting is as of the second one.
func (b *blocked) add(from, to Time, isWaiting bool) {
	if from == 0 || to <= from {
		return
	}
	share := 0.0
	if isWaiting {
		share = 1
	}
	*b += blocked((share - float64(*b)) * min(1, float64(to-from)/float64(fading)))
}

// blocked returns the shares of processes on their GPUs. A wait covers collectives of all communicators in the stream,
// but only those that are not known to be done.
func (a *Analyzer) blocked() map[unit]blocked {
	most := map[unit]blocked{}
	for _, c := range a.comms {
		for _, m := range c.members {
			key := unit{m.Process.key(), m.Device}
			most[key] = max(most[key], m.blocked)
		}
	}
	return most
}
