// SPDX-License-Identifier: Apache-2.0

package names

// entryBytes is the size of an entry besides its text: key, headers of strings,
// and its share of a map that is two thirds full.
const entryBytes = 128

// cache remembers values of at most limit bytes. When it is full it forgets any of
// them: a table asks for its rows in the same order each time, and a cache that
// forgot what was used longest ago would never have the next.
type cache[K comparable, V any] struct {
	limit, bytes int
	entries      map[K]sized[V]
}

type sized[V any] struct {
	value V
	size  int
}

func newCache[K comparable, V any](limit int) *cache[K, V] {
	return &cache[K, V]{limit: limit, entries: map[K]sized[V]{}}
}

func (c *cache[K, V]) get(k K) (V, bool) {
	e, ok := c.entries[k]
	return e.value, ok
}

// put remembers the value of a key that get does not have.
func (c *cache[K, V]) put(k K, v V, size int) {
	size += entryBytes
	for other, e := range c.entries { // begins anywhere
		if c.bytes+size <= c.limit {
			break
		}
		delete(c.entries, other)
		c.bytes -= e.size
	}
	c.entries[k] = sized[V]{v, size}
	c.bytes += size
}
