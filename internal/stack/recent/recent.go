// SPDX-License-Identifier: Apache-2.0

// Package recent keeps what was used recently: a daemon sees processes start and end for
// months, and what it knows of those that have ended has to go with them.
package recent

import "time"

// keepUnused is for how long at least a value is kept that is not requested. Rows ask for
// theirs each second; those of a process that has ended are removed, and with them its
// state.
const keepUnused = 2 * time.Minute

// Cache remembers the values used last: at most 2 × limit of them, and none that was not
// used for twice keepUnused while others came. It keeps two generations; when the young
// one is full, or old enough, it becomes the old one, and what was not used since is
// forgotten. That is less exact than a list of uses, but a hit costs one map access. Not
// safe for concurrent use.
type Cache[K comparable, V any] struct {
	limit      int
	young, old map[K]V
	born       time.Time // of the young generation
	now        func() time.Time
	dropped    func(V)
	size       func(V) int // nil: of no interest
	bytes      int         // of the young generation
	limitBytes int
}

// New returns an empty cache.
func New[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, young: map[K]V{}, born: time.Now(), now: time.Now}
}

// LimitBytes also bounds the values by their size: to 2 × limit bytes, and two values.
func (c *Cache[K, V]) LimitBytes(limit int, size func(V) int) { c.limitBytes, c.size = limit, size }

// OnDrop has f called with each value that is forgotten because it was not used. One that is replaced is not reported.
func (c *Cache[K, V]) OnDrop(f func(V)) { c.dropped = f }

// Get returns the value that was put, as long as it is kept.
func (c *Cache[K, V]) Get(k K) (V, bool) {
	if v, ok := c.young[k]; ok {
		return v, true
	}
	v, ok := c.old[k]
	if ok {
		delete(c.old, k) // it is kept, whatever Put forgets
		c.Put(k, v)
	}
	return v, ok
}

// Put keeps a value, or replaces it.
func (c *Cache[K, V]) Put(k K, v V) {
	if now := c.now(); len(c.young) >= c.limit || c.bytes > c.limitBytes || now.Sub(c.born) >= keepUnused {
		c.forget()
		c.old, c.young = c.young, make(map[K]V, min(len(c.young), c.limit/4))
		c.born, c.bytes = now, 0
	}
	if c.size != nil {
		if former, ok := c.young[k]; ok {
			c.bytes -= c.size(former)
		}
		c.bytes += c.size(v)
	}
	c.young[k] = v
}

// forget reports the values of the old generation that were not used since.
func (c *Cache[K, V]) forget() {
	if c.dropped == nil {
		return
	}
	for k, v := range c.old {
		if _, isUsed := c.young[k]; !isUsed {
			c.dropped(v)
		}
	}
}

// Len is how many values are kept, at most: of some there may be an older one.
func (c *Cache[K, V]) Len() int { return len(c.young) + len(c.old) }
