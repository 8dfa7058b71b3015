// SPDX-License-Identifier: Apache-2.0

package throttle

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
