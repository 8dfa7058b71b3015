// SPDX-License-Identifier: Apache-2.0

package weave

import "container/heap"

// Merge sorts events from several CPUs and rings by their end. It holds an event back
// until others are `window` newer, but at most `most` events: beyond that the oldest is
// emitted, and later arrivals may be out of order, which is counted. It is for one
// goroutine.
type Merge struct {
	window uint64 // ns
	most   int
	out    func(any)

	held   held
	newest uint64
	last   uint64 // end of the last event emitted
	late   uint64
	serial uint64
}

// NewMerge passes events to out: *Call, *Host and *Inuse, as they were added.
func NewMerge(windowNS uint64, most int, out func(any)) *Merge {
	return &Merge{window: windowNS, most: most, out: out}
}

// Add adds an event that ended at a time, and emits those that are due.
func (m *Merge) Add(end uint64, event any) {
	m.serial++
	heap.Push(&m.held, item{end, m.serial, event})
	m.newest = max(m.newest, end)
	for len(m.held) > m.most || len(m.held) > 0 && m.held[0].end+m.window <= m.newest {
		m.pop()
	}
}

// Until declares that all events which ended before a time have arrived, and emits them.
func (m *Merge) Until(ns uint64) {
	for len(m.held) > 0 && m.held[0].end < ns {
		m.pop()
	}
}

// Late is the number of events that arrived after a newer one was emitted.
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
