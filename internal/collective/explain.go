// SPDX-License-Identifier: Apache-2.0

package collective

// explain returns for each item the one that explains it; a cause explains itself.
//
// From a waiting item the search goes, breadth first, to the operations in which its missing processes wait, or that come
// before it in the streams of its ranks, and ends at the nearest cause. If it comes to none, ranks wait for each other, and
// the first item that it comes to counts as one. It is done from all items at once, backwards from the causes, in time
// that is proportional to the items and their ranks: a program can have thousands of communicators that wait for each other.
func explain(items []*stuck, in map[unit][]int) []int {
	g, cause := graph{far: make([]int, len(items)), ahead: make([][]int, len(items)), behind: make([][]int, len(items))}, make([]int, len(items))
	of, inverted := map[*communicator][]int{}, map[*communicator]int{}
	byID := map[operationID][]int{}
	for n, s := range items {
		g.far[n] = unknown
		of[s.comm] = append(of[s.comm], n)
		if !s.comm.late {
			byID[s.id] = append(byID[s.id], n)
		}
		if _, known := inverted[s.comm]; s.inverted && !known {
			inverted[s.comm] = n
		}
	}
	units, communicators, operations, streams := map[unit]int{}, map[*communicator]int{}, map[operationID]int{}, map[streamKey]int{}
	incomplete := incompleteIn(items)
	var causes, last []int
	for n, s := range items {
		cause[n] = n
		if s.ahead != nil && !s.inverted {
			// All have arrived, and all have another operation before it.
			link(&g, n, communicators, s.ahead, of[s.ahead])
			if len(of[s.ahead]) == 0 {
				last = append(last, n) // of which nothing is known: a cause if there is no other
			}
			continue
		}
		isBehind := linkBefore(&g, n, s, operations, byID)
		if isBehind = linkLater(&g, n, s, streams, incomplete) || isBehind; isBehind {
			last = append(last, n)
			continue
		}
		if other, known := inverted[s.ahead]; s.inverted && known {
			cause[n] = min(n, other)
			causes = append(causes, n)
			continue
		}
		if _, cycle := free(s, in, n); !cycle {
			causes = append(causes, n) // also a mismatch, or if all have arrived
			continue
		}
		for _, m := range s.missing {
			link(&g, n, units, m.unit, in[m.unit])
		}
	}
	for _, from := range [][]int{causes, last} {
		for _, n := range g.spread(from) {
			cause[n] = cause[g.next(n)]
		}
	}
	for n := range items {
		if g.far[n] == unknown {
			for _, other := range g.spread([]int{n}) {
				cause[other] = n
			}
		}
	}
	return cause
}

// linkBefore makes an item in which all have arrived wait for those that come before it in the streams; false: there are none.
func linkBefore(g *graph, n int, s *stuck, known map[operationID]int, items map[operationID][]int) (isBehind bool) {
	if !s.hasArrived() {
		return false
	}
	for _, id := range s.blockers {
		if in := items[id]; len(in) > 0 {
			link(g, n, known, id, in)
			isBehind = true
		}
	}
	return isBehind
}

// newest is the newest operation of a stream in which ranks are missing.
type newest struct {
	enter Time
	item  int
}

// incompleteIn finds those of all streams.
func incompleteIn(items []*stuck) map[streamKey]newest {
	found := map[streamKey]newest{}
	for n, s := range items {
		if len(s.missing) == 0 {
			continue
		}
		for _, m := range s.waiting {
			if op := s.operation(m); op != nil {
				if key := (streamKey{m.Process.key(), op.Stream}); op.Enter > found[key].enter {
					found[key] = newest{op.Enter, n}
				}
			}
		}
	}
	return found
}

// linkLater makes an item in which all have arrived wait for one in which ranks are missing, and that comes after it in a stream: the wait
// covers both, so that the first may be done. False: there is none.
func linkLater(g *graph, n int, s *stuck, known map[streamKey]int, incomplete map[streamKey]newest) (isCovered bool) {
	if !s.hasArrived() {
		return false
	}
	for _, m := range s.waiting {
		if op := s.operation(m); op != nil {
			key := streamKey{m.Process.key(), op.Stream}
			if later := incomplete[key]; later.enter > op.Enter {
				link(g, n, known, key, []int{later.item})
				isCovered = true
			}
		}
	}
	return isCovered
}

// unknown is a distance that was not found yet.
const unknown = -1

// graph is who waits for whom: items wait for processes and communicators, and these in items.
type graph struct {
	far   []int   // how far the nearest cause is from an item
	ahead [][]int // waiters for which an item waits, in order
	// behind are those that wait in an item.
	behind  [][]int
	waiters []waiter
}

// waiter is a process, or a communicator, for which items wait.
type waiter struct {
	in    []int // items, in order
	from  []int // items that wait for it
	far   int   // as that of the nearest item
	first int   // of those
}

// link makes an item wait for a process or communicator.
func link[K comparable](g *graph, item int, known map[K]int, key K, in []int) {
	w, ok := known[key]
	if !ok {
		w = len(g.waiters)
		known[key] = w
		g.waiters = append(g.waiters, waiter{in: in, far: unknown, first: unknown})
		for _, n := range in {
			g.behind[n] = append(g.behind[n], w)
		}
	}
	g.ahead[item] = append(g.ahead[item], w)
	g.waiters[w].from = append(g.waiters[w].from, item)
}

// spread finds the distance of all items from which one of some can be reached, and returns them, the nearest first.
func (g *graph) spread(to []int) []int {
	queue := append([]int(nil), to...)
	for _, n := range to {
		g.far[n] = 0
	}
	for at := 0; at < len(queue); at++ {
		n := queue[at]
		for _, i := range g.behind[n] {
			w := &g.waiters[i]
			if w.far != unknown {
				continue
			}
			w.far = g.far[n]
			for _, other := range w.from {
				if g.far[other] == unknown {
					g.far[other] = w.far + 1
					queue = append(queue, other)
				}
			}
		}
	}
	return queue[len(to):]
}

// next is the item to which a search from an item goes first, of those that are nearest to a cause.
func (g *graph) next(n int) int {
	for _, i := range g.ahead[n] {
		w := &g.waiters[i]
		if w.far != g.far[n]-1 {
			continue
		}
		for at := 0; w.first == unknown; at++ {
			if g.far[w.in[at]] == w.far {
				w.first = w.in[at]
			}
		}
		return w.first
	}
	return n
}
