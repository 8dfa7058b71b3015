// SPDX-License-Identifier: Apache-2.0

package names

// entryBytes is what an entry takes besides its text: key, headers of strings,
// and its share of a map that is two thirds full.
const entryBytes = 128

// cache remembers the values used last, at most 2 × limit bytes of them, in two
// generations: when the young one is full it becomes the old one, and what was not
// used since is forgotten.
type cache[V any] struct {
	limit, bytes int // of the young
	young, old   map[uint64]sized[V]
}

type sized[V any] struct {
	value V
	size  int
}

func newCache[V any](limit int) *cache[V] {
	return &cache[V]{limit: limit, young: map[uint64]sized[V]{}}
}

func (c *cache[V]) get(k uint64) (V, bool) {
	if e, ok := c.young[k]; ok {
		return e.value, true
	}
	e, ok := c.old[k]
	if ok {
		delete(c.old, k)
		c.put(k, e.value, e.size)
	}
	return e.value, ok
}

// put remembers a value of so many bytes.
func (c *cache[V]) put(k uint64, v V, size int) {
	if c.bytes >= c.limit {
		c.old, c.young, c.bytes = c.young, map[uint64]sized[V]{}, 0
	}
	c.young[k] = sized[V]{v, size}
	c.bytes += size + entryBytes
}
