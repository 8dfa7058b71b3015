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

// pair draws an arrow from a send to its receive when both are drawn: from when it was
// sent until it was known to be received.
func (w *Weaver) pair(c *Call, on track.Track, until uint64) {
	if c.Pair == nil || c.Error != "" {
		return
	}
	isReceiver := c.Kind == Collective && c.Function == receiveFunction
	mine := end{on, c.Start, until}
	other, ok := w.pairs[pairKey{*c.Pair, !isReceiver}]
	if !ok {
		if len(w.pairs) >= maxPairs {
			clear(w.pairs) // ends without another one: of ranks that are not seen
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

// receiveFunction is the one whose slices arrows lead to.
const receiveFunction = "ncclRecv"
