// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"math"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Untrusted means that a daemon sends what the gadgets never do, whatever the processes that
// they trace do: none of its data can be relied on. Values that a traced process can make up,
// such as sizes and names, are no reason.
type Untrusted struct {
	Reason Reason
	Detail string
}

// Reason for which a daemon is not trusted. It is a label of metrics, so its text never changes.
type Reason string

// Reasons.
const (
	OtherNode  Reason = "other node" // rows name a node that another daemon is of
	Impossible Reason = "numbers"    // more was freed or is in use than was allocated
	WrongClock Reason = "clock"      // no boot clock can be there
	Flood      Reason = "flood"      // more data than the limit
)

// Reasons are all of them.
func Reasons() []Reason { return []Reason{OtherNode, Impossible, WrongClock, Flood} }

// Error implements error.
func (e *Untrusted) Error() string {
	return fmt.Sprintf("the daemon cannot be trusted (%s): %s", e.Reason, e.Detail)
}

// inFlight is how many calls can be counted in one column of a row and not yet in another, as a
// row is read while calls change it.
const inFlight = 1 << 20

// checkRow of memory. Bytes are what processes say they allocate; the numbers of calls are
// counted by the gadget.
func checkRow(v *profile.Values) error {
	limit := min(v.AllocObjects, math.MaxInt64-inFlight) + inFlight
	if max(v.FreedObjects, v.ImplicitObjects, v.InuseObjects) > limit || v.FreedObjects > limit-v.ImplicitObjects {
		return &Untrusted{Impossible, fmt.Sprintf("a row has %d allocations, of which %d and %d were freed and %d are in use",
			v.AllocObjects, v.FreedObjects, v.ImplicitObjects, v.InuseObjects)}
	}
	return nil
}

// names reads the node that rows name.
type names struct {
	feed *Feed
	node datasource.FieldAccessor // nil: they name none
}

func (f *Feed) namesOf(ds datasource.DataSource) names {
	return names{f, ds.GetField("k8s.node")}
}

// check returns Untrusted if a row names the node of another daemon. Any other name is replaced
// by that of the daemon.
func (n names) check(d datasource.Data) error {
	if n.node == nil || n.feed.cfg.IsOther == nil {
		return nil
	}
	if name, _ := n.node.String(d); name != "" && name != n.feed.cfg.Node && n.feed.cfg.IsOther(name) {
		return &Untrusted{OtherNode, fmt.Sprintf("rows of node %q", name)}
	}
	return nil
}
