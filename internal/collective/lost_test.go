// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestALostNodeHasOneVerdict per tenant, however many communicators had ranks there, for as long as they wait: three
// replicas of a model over four nodes, of which the last one or two are lost.
func TestALostNodeHasOneVerdict(t *testing.T) {
	const perNode, groups = 2, 3
	nodes := []string{"a", "b", "c", "d"}
	for _, c := range []struct {
		name      string
		lost      int // from the end
		tenants   []string
		verdicts  int
		text      string
		otherNode bool // its other processes are still heard of
	}{
		{name: "one", lost: 1, tenants: []string{"x", "x", "x"}, verdicts: 1,
			text: "all ranks that are heard of are in AllReduce 21 of communicator 0x00000001, for 1h0m0s; ranks 6, 7 of it are not heard of: " +
				"node d has been silent for 1h0m0s; 2 other communicators wait behind it"},
		{name: "two", lost: 2, tenants: []string{"x", "x", "x"}, verdicts: 1,
			text: "all ranks that are heard of are in AllReduce 21 of communicator 0x00000001, for 1h0m0s; ranks 4-7 of it are not heard of: " +
				"nodes c, d have been silent for 1h0m0s; 2 other communicators wait behind it"},
		{name: "tenants", lost: 1, tenants: []string{"x", "y", "y"}, verdicts: 2,
			text: "all ranks that are heard of are in AllReduce 21 of communicator 0x00000001, for 1h0m0s; ranks 6, 7 of it are not heard of: " +
				"node d has been silent for 1h0m0s"},
		{name: "part of the node", lost: 1, tenants: []string{"x", "x", "x"}, verdicts: 3, otherNode: true,
			text: "all ranks that are heard of are in AllReduce 21 of communicator 0x00000001, for 1h0m0s; ranks 6, 7 of it are not heard of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := New(Config{Silent: 15 * time.Second})
			require.NoError(t, err)
			found := 0
			for s := Time(0); s <= 3600; s += 5 {
				at := start + s*second
				for n := range perNode * len(nodes) {
					if s > 0 && n >= perNode*(len(nodes)-c.lost) {
						continue
					}
					for g := range groups {
						o := rank(n, 21, start, at)
						o.Tenant, o.Process.Node = c.tenants[g], nodes[n/perNode]
						o.Process.ID, o.Process.PID = uint64(100*g+n+1), uint32(100*g+n+1)
						o.Communicator = Communicator{Hash: uint64(g + 1), Size: perNode * len(nodes)}
						observe(t, a, o)
					}
				}
				if c.otherNode {
					o := done(rank(0, 1, start, at))
					o.Process.Node, o.Process.ID, o.Communicator = "d", 999, Communicator{Hash: 99, Size: 1}
					observe(t, a, o)
				}
				for _, v := range a.Evaluate(at) {
					require.Equal(t, Elsewhere, v.Reason, v.String(at))
					require.Zero(t, v.Cleared, v.String(at))
					found++
				}
			}
			require.Equal(t, c.verdicts, found)
			require.Equal(t, c.text, a.Verdicts()[0].String(start+3600*second))
		})
	}
}
