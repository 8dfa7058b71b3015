// SPDX-License-Identifier: Apache-2.0

package waits

import "slices"

// Edge is a process that waits for others, any of which can end the wait.
type Edge struct {
	From     uint32
	TID      uint32
	Syscall  string
	Resource Resource
	// To is empty if something else can end the wait: a process of another machine, a timer,
	// a client that connects, a device.
	To []uint32
}

// The limits of the edges of a process. One with more may be woken by something that is not known.
const (
	maxEdges   = 256
	maxTargets = 1 << 14
)

// Edges are the waits of one process that others can end, for each resource once. Of its threads the main thread
// counts; the others only if that one waits for a lock of the process, or was not read.
func (r *Reader) Edges(threads []Wait) []Edge {
	c := collector{seen: map[Resource]bool{}}
	for _, w := range threads {
		if w.PID == w.TID && !w.isLocked() {
			c.add(r, w)
			return c.edges
		}
	}
	for _, w := range threads {
		if w.PID != w.TID {
			c.add(r, w)
		}
	}
	return c.edges
}

// collector collects the edges of a process.
type collector struct {
	seen    map[Resource]bool // without names; the empty one: of a thread that runs
	edges   []Edge
	targets int
}

func (c *collector) add(r *Reader, w Wait) {
	if len(w.For) == 0 && c.isNew(Resource{}) { // it runs
		c.edges = append(c.edges, Edge{From: w.PID, TID: w.TID})
	}
	for _, res := range w.For {
		if len(c.seen) > maxEdges || !c.isNew(Resource{Kind: res.Kind, ID: res.ID, Writes: res.Writes}) {
			continue
		}
		if len(c.seen) > maxEdges || c.targets > maxTargets {
			c.edges = append(c.edges, Edge{w.PID, w.TID, w.Syscall, res, nil})
			continue
		}
		if ends := r.Ends(w.PID, res); len(ends.PIDs) > 0 || !ends.IsOwn {
			c.edges = append(c.edges, Edge{w.PID, w.TID, w.Syscall, res, ends.PIDs})
			c.targets += len(ends.PIDs)
		}
	}
}

func (c *collector) isNew(res Resource) bool {
	if c.seen[res] {
		return false
	}
	c.seen[res] = true
	return true
}

// isLocked reports whether a thread waits for another of its process.
func (w Wait) isLocked() bool { return len(w.For) == 1 && w.For[0].Kind == Lock }

// IsClosed reports whether nothing but these processes, the waiting one among them, can end a
// wait: no other process, time limit, timer, device or client.
func (r *Reader) IsClosed(w Wait, circle []uint32) bool {
	if w.IsTimed {
		return false
	}
	for _, res := range w.For {
		ends := r.Ends(w.PID, res)
		if !ends.IsKnown() || ends.Address != "" || slices.ContainsFunc(ends.PIDs, func(pid uint32) bool { return !slices.Contains(circle, pid) }) {
			return false
		}
	}
	return len(w.For) > 0
}

// Cycles returns the shortest circle of waits through each process, each once, beginning with
// the lowest process. `stuck` are the processes that do not move. A process that waits for a thing
// that only others can change is in no circle. One that waits for a thing that others have, too, is:
// most of them only inherited it. IsClosed reports whether they may end the wait.
func Cycles(edges []Edge, stuck map[uint32]bool) (all [][]uint32) {
	next := map[uint32][]uint32{}
	escapes, known := map[uint32]bool{}, map[[2]uint32]bool{}
	for _, e := range edges {
		isStuck := false
		for _, to := range e.To {
			if !stuck[to] {
				continue
			}
			isStuck = true
			if way := [2]uint32{e.From, to}; !known[way] {
				known[way] = true
				next[e.From] = append(next[e.From], to)
			}
		}
		if !isStuck {
			escapes[e.From] = true
		}
	}
	seen := map[uint32]bool{}
	for _, from := range sorted(next) {
		if seen[from] || !stuck[from] {
			continue
		}
		if circle := shortest(next, escapes, from); circle != nil {
			for _, pid := range circle {
				seen[pid] = true
			}
			first := slices.Index(circle, slices.Min(circle))
			all = append(all, append(slices.Clone(circle[first:]), circle[:first]...))
		}
	}
	return all
}

// shortest returns the shortest way from a process back to itself; nil: none.
func shortest(next map[uint32][]uint32, escapes map[uint32]bool, from uint32) []uint32 {
	before := map[uint32]uint32{}
	for queue := []uint32{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if escapes[at] {
			continue
		}
		for _, to := range next[at] {
			if to == from {
				way := []uint32{at}
				for at != from {
					at = before[at]
					way = append(way, at)
				}
				slices.Reverse(way)
				return way
			}
			if _, known := before[to]; !known {
				before[to] = at
				queue = append(queue, to)
			}
		}
	}
	return nil
}

func sorted(next map[uint32][]uint32) (all []uint32) {
	for pid := range next {
		all = append(all, pid)
	}
	slices.Sort(all)
	return all
}
