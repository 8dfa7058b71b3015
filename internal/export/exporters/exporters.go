// SPDX-License-Identifier: Apache-2.0

// Package exporters connects exporters with the metrics about them, without imports
// between the two: an exporter registers a function that reads its counters, and the
// publisher of metrics calls all of them. It imports nothing.
package exporters

import (
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
// other goroutines, possibly once more during remove, and must not block.
func (r *Registry) Add(name string, read func() Stats) (remove func()) {
	e := &entry{name, read}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.entries = slices.DeleteFunc(r.entries, func(o *entry) bool { return o == e })
	}
}

// Read reads all exporters. Those of one name are added up, because series must be unique.
func (r *Registry) Read() []Named {
	r.mu.Lock()
	entries := slices.Clone(r.entries)
	r.mu.Unlock()
	var all []Named
	for _, e := range entries {
		s := e.read()
		i := slices.IndexFunc(all, func(n Named) bool { return n.Name == e.name })
		if i < 0 {
			all = append(all, Named{e.name, s})
			continue
		}
		to := &all[i].Stats
		to.Items += s.Items
		to.Bytes += s.Bytes
		to.CapacityBytes += s.CapacityBytes
		to.Sent += s.Sent
		to.Retries += s.Retries
		to.Lost += s.Lost
		to.LostBytes += s.LostBytes
	}
	slices.SortFunc(all, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return all
}
