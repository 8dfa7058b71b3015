// SPDX-License-Identifier: Apache-2.0

package weave

import "github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"

// pairKey is one end of a pair.
type pairKey struct {
	Pair
	isReceiver bool
}

// end is where an arrow begins or ends.
type end struct {
	on         track.Track
	start, end uint64
}

// pair draws an arrow from a send to its receive if both are drawn: from the time of the
// send to the time at which the receive was known to be done.
func (w *Weaver) pair(c *Call, on track.Track, until uint64) {
	if c.Pair == nil || c.Error != "" {
		return
	}
	isReceiver := c.Kind == Collective && c.Function == receiveFunction
	mine := end{on, c.Start, until}
	other, ok := w.pairs[pairKey{*c.Pair, !isReceiver}]
	if !ok {
		if len(w.pairs) >= maxPairs {
			clear(w.pairs) // ends without a counterpart: of ranks that are not traced
		}
		w.pairs[pairKey{*c.Pair, isReceiver}] = mine
		return
	}
	delete(w.pairs, pairKey{*c.Pair, !isReceiver})
	from, to := mine, other
	if isReceiver {
		from, to = other, mine
	}
	at := max(to.end, to.start+1) - 1 // within the slice
	w.arrows++
	w.out.Arrow(track.Arrow{ID: w.arrows, Name: "is received", From: from.on, FromNS: from.start, To: to.on, ToNS: max(at, from.start)})
}

// receiveFunction is the function to whose slices arrows lead.
const receiveFunction = "ncclRecv"
