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

// EqualShare is how many entries each of many may have in its list so that all have most at most: those with fewer lose none, and
// those with more have the same number.
func EqualShare[K comparable](lists map[K]*list.List, most int) int {
	within := func(share int) (sum int) {
		for _, its := range lists {
			sum += min(its.Len(), share)
		}
		return sum
	}
	return sort.Search(most+1, func(share int) bool { return within(share) > most }) - 1
}
