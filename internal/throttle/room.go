// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"container/list"
	"sort"
)

// HasRoom reports whether one of many who share a table, of which it has some entries, may have one more: the last quarter
// is for those with less than a quarter. own is called only where it matters.
func HasRoom(entries, most int, own func() int) bool {
	last := most / 4
	return entries < most-last || entries < most && own() < last
}

// HasRoomIn is HasRoom for a map, whose entries show whose they are.
func HasRoomIn[K comparable, V any](table map[K]V, most int, isOwn func(K, V) bool) bool {
	return HasRoom(len(table), most, func() (n int) {
		for k, v := range table {
			if isOwn(k, v) {
				n++
			}
		}
		return n
	})
}

// Queues are values by whom they belong to, each queue the oldest first.
type Queues[K comparable, V any] map[K]*list.List

// Push adds a value, and returns its place.
func (q Queues[K, V]) Push(of K, value V) *list.Element {
	if q[of] == nil {
		q[of] = list.New()
	}
	return q[of].PushBack(value)
}

// Remove takes a value out.
func (q Queues[K, V]) Remove(of K, place *list.Element) {
	if q[of].Remove(place); q[of].Len() == 0 {
		delete(q, of)
	}
}

// Excess returns the oldest values of those with most, without which there are most at most: those with fewer lose none, and
// those with more have the same number.
func (q Queues[K, V]) Excess(most int) (all []V) {
	within := func(share int) (sum int) {
		for _, its := range q {
			sum += min(its.Len(), share)
		}
		return sum
	}
	share := sort.Search(most+1, func(share int) bool { return within(share) > most }) - 1
	for _, its := range q {
		for e, n := its.Front(), its.Len(); n > share; e, n = e.Next(), n-1 {
			all = append(all, e.Value.(V))
		}
	}
	return all
}
