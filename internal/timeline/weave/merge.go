// SPDX-License-Identifier: Apache-2.0

package weave

import "container/heap"

// Merge puts what comes from several CPUs and rings into the order in which it
// ended. It holds an event back until others are `window` newer, and at most `most`
// of them: then the oldest goes first, and what comes still later is out of order,
// which is counted. It is for one goroutine.
type Merge struct {
	window uint64 // ns
	most   int
	out    func(any)

	held   held
	newest uint64
	last   uint64 // end of what went out
	late   uint64
	serial uint64
}

// NewMerge gives events to out: *Call, *Host and *Inuse, as they were added.
func NewMerge(windowNS uint64, most int, out func(any)) *Merge {
	return &Merge{window: windowNS, most: most, out: out}
}

// Add takes an event that ended at a time, and gives out those that are due.
func (m *Merge) Add(end uint64, event any) {
	m.serial++
	heap.Push(&m.held, item{end, m.serial, event})
	m.newest = max(m.newest, end)
	for len(m.held) > m.most || len(m.held) > 0 && m.held[0].end+m.window <= m.newest {
		m.pop()
	}
}

// Until reports that all that ended before a time has arrived: it is given out.
func (m *Merge) Until(ns uint64) {
	for len(m.held) > 0 && m.held[0].end < ns {
		m.pop()
	}
}

// Late is how many came after something newer had gone out.
func (m *Merge) Late() uint64 { return m.late }

func (m *Merge) pop() {
	i := heap.Pop(&m.held).(item)
	if i.end < m.last {
		m.late++
	}
	m.last = max(m.last, i.end)
	m.out(i.event)
}

type item struct {
	end, serial uint64
	event       any
}

type held []item

func (h held) Len() int { return len(h) }
func (h held) Less(i, j int) bool {
	return h[i].end < h[j].end || h[i].end == h[j].end && h[i].serial < h[j].serial
}
func (h held) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *held) Push(x any)   { *h = append(*h, x.(item)) }
func (h *held) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = item{}
	*h = old[:len(old)-1]
	return last
}
