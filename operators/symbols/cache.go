// SPDX-License-Identifier: Apache-2.0

package symbols

// cache remembers the values used last: at most 2 × limit of them. It keeps two
// generations; when the young one is full it becomes the old one, and what was
// not used since is forgotten. That is less exact than a list of uses, but a
// hit costs one map access. Not safe for concurrent use.
type cache[K comparable, V any] struct {
	limit      int
	young, old map[K]V
}

func newCache[K comparable, V any](limit int) *cache[K, V] {
	return &cache[K, V]{limit: limit, young: map[K]V{}}
}

func (c *cache[K, V]) get(k K) (V, bool) {
	if v, ok := c.young[k]; ok {
		return v, true
	}
	v, ok := c.old[k]
	if ok {
		c.put(k, v)
	}
	return v, ok
}

func (c *cache[K, V]) put(k K, v V) {
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[K]V, c.limit/4)
	}
	c.young[k] = v
}
