// SPDX-License-Identifier: Apache-2.0

// Package exporters connects exporters with the metrics about them, without imports
// between the two: an exporter registers a function that reads its counters, and the
// publisher of metrics calls all of them. It imports nothing.
package exporters

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Stats are an exporter's counters since it started, and its queue now.
type Stats struct {
	// Items and Bytes wait to be sent; CapacityBytes is the size at which the queue
	// starts to drop, 0 without a limit.
	Items, Bytes, CapacityBytes int64
	// Sent were accepted by the receiver. Retries are attempts after the first.
	Sent, Retries int64
	// Lost items will never arrive: the queue was full, or the receiver refused them.
	Lost, LostBytes int64
}

// Registry is safe for concurrent use; the zero value is empty.
type Registry struct {
	mu      sync.Mutex
	entries []*entry
	removed map[string]Stats // the last counters of those that were removed, added up by name
}

type entry struct {
	name string
	read func() Stats
}

// Named is one exporter's Stats.
type Named struct {
	Name string
	Stats
}

// Add lists an exporter, "pyroscope" say, until remove is called. read is called from
// other goroutines, and a last time by remove, and must not block.
func (r *Registry) Add(name string, read func() Stats) (remove func()) {
	e := &entry{name, read}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.Index(r.entries, e)
		if i < 0 {
			return
		}
		r.entries = slices.Delete(r.entries, i, i+1)
		last := e.read()
		last.Items, last.Bytes, last.CapacityBytes = 0, 0, 0
		if r.removed == nil {
			r.removed = map[string]Stats{}
		}
		r.removed[e.name] = r.removed[e.name].add(last)
	}
}

func (s Stats) add(o Stats) Stats {
	return Stats{
		Items: s.Items + o.Items, Bytes: s.Bytes + o.Bytes, CapacityBytes: s.CapacityBytes + o.CapacityBytes,
		Sent: s.Sent + o.Sent, Retries: s.Retries + o.Retries, Lost: s.Lost + o.Lost, LostBytes: s.LostBytes + o.LostBytes,
	}
}

// Read reads all exporters. Those of one name are added up, because series must be unique. Counters of
// those that were removed stay in the sums, so that they never fall.
func (r *Registry) Read() []Named {
	r.mu.Lock()
	entries, sums := slices.Clone(r.entries), maps.Clone(r.removed)
	r.mu.Unlock()
	if sums == nil {
		sums = map[string]Stats{}
	}
	for _, e := range entries {
		sums[e.name] = sums[e.name].add(e.read())
	}
	var all []Named
	for name, s := range sums {
		all = append(all, Named{name, s})
	}
	slices.SortFunc(all, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return all
}
