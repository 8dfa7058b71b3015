// SPDX-License-Identifier: Apache-2.0

package simnodes

// Lie is a way in which a daemon sends untrue data, or too much.
type Lie int

// Lies of a daemon.
const (
	Truthful  Lie = iota
	OtherNode     // its rows name another node
	Numbers       // more is in use than was allocated
	Clock         // its boot clock is years ahead
	Flood         // it sends as much as it can
)

// lie makes a row untrue.
func (n *node) lie(r row) {
	switch {
	case n.kind == Numbers && r.t == n.memory:
		r.u64("inuse_objects", 1<<40)
	case n.kind == Clock && r.t == n.communicators:
		r.u64("now_boot_ns", 1<<62)
	}
}
