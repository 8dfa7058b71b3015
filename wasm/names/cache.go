// SPDX-License-Identifier: Apache-2.0

package names

// entryBytes is what an entry takes besides its text: key, headers of strings,
// and its share of a map that is two thirds full.
const entryBytes = 128

// cache remembers the values used last, at most 2 × limit bytes of them, in two
// generations: when the young one is full it becomes the old one, and what was not
// used since is forgotten.
type cache[K comparable, V any] struct {
	limit, bytes int // of the young
	young, old   map[K]sized[V]
}

type sized[V any] struct {
	value V
	size  int
}

func newCache[K comparable, V any](limit int) *cache[K, V] {
	return &cache[K, V]{limit: limit, young: map[K]sized[V]{}}
}

func (c *cache[K, V]) get(k K) (V, bool) {
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
func (c *cache[K, V]) put(k K, v V, size int) {
	if c.bytes >= c.limit {
		c.old, c.young, c.bytes = c.young, map[K]sized[V]{}, 0
	}
	c.young[k] = sized[V]{v, size}
	c.bytes += size + entryBytes
}
