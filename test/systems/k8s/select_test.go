// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// empty ends the pods of both teams: a starting gadget attaches to existing pods, which
// takes a minute for each here.
func (c *cluster) empty(t *testing.T) {
	t.Helper()
	c.do(t, c.step("apply"))
	c.do(t, "kubectl scale -n team-a deploy/chat --replicas=0; kubectl scale -n team-b deploy/vision --replicas=0")
	c.do(t, "kubectl wait -n team-a --for=delete pod -l app=chat --timeout=5m; kubectl wait -n team-b --for=delete pod -l app=vision --timeout=5m")
}

// fill starts them, and returns their memory in use. They start one after the other:
// while Inspektor Gadget attaches to a container it misses another one that starts, and
// finds it seconds later.
func (c *cluster) fill(t *testing.T) map[pod]uint64 {
	t.Helper()
	c.do(t, "kubectl scale -n team-a deploy/chat --replicas=1; kubectl rollout status -n team-a deploy/chat --timeout 8m")
	c.do(t, "kubectl scale -n team-b deploy/vision --replicas=1; kubectl rollout status -n team-b deploy/vision --timeout 8m")
	return c.settled(t)
}

// settled waits until each team has one pod that has finished serving, and returns their
// memory in use.
func (c *cluster) settled(t *testing.T) map[pod]uint64 {
	t.Helper()
	c.do(t, "kubectl rollout status -n team-a deploy/chat --timeout 8m >/dev/null")
	c.do(t, "kubectl rollout status -n team-b deploy/vision --timeout 8m >/dev/null")
	a, b := c.podOf(t, "team-a", "app=chat"), c.podOf(t, "team-b", "app=vision")
	return map[pod]uint64{a: c.holds(t, a, 1), b: c.holds(t, b, 2)}
}

// requireOnly checks that the gadget shows the memory of a namespace's pods to the byte,
// and no other pods.
func requireOnly(t *testing.T, g *gadget, namespace string, holds map[pod]uint64) {
	t.Helper()
	for p, bytes := range holds {
		if p.namespace == namespace {
			g.wait("what "+p.name+" holds", func() bool { return g.inuse()[p] == bytes })
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.seen {
		// The names of a pod that has ended are forgotten; its rows stay.
		if p.namespace != "" {
			require.Equal(t, namespace, p.namespace, "a row of %s", p.name)
		}
	}
}

// selectors: -n and -l, on pods that start meanwhile.
func selectors(t *testing.T, c *cluster) {
	c.empty(t)
	byNamespace := c.gadget(t, c.admin, c.step("namespace")+" -o json")
	byLabel := c.gadget(t, c.admin, c.step("label")+" -o json")
	for _, g := range []*gadget{byNamespace, byLabel} {
		g.wait("it runs", func() bool { return g.tables > 0 })
	}
	holds := c.fill(t)
	requireOnly(t, byNamespace, "team-a", holds)
	requireOnly(t, byLabel, "team-b", holds) // of model=large
}

// users: a group may use kubectl gadget if it may connect to the daemon, and then sees
// its own namespace; this is a filter, not a limit of what it may see.
func users(t *testing.T, c *cluster) {
	user := c.ca.client(t, "user", "alice", "team-a", "team-a")
	run := "kubectl gadget run " + registry + "/gpu-gadgets/cuda_alloc:v1 -o json"
	_, err := c.try(user, run+" --timeout 5")
	require.ErrorContains(t, err, "forbidden")

	c.do(t, c.step("user"))
	c.empty(t)
	own := c.gadget(t, user, run)
	all := c.gadget(t, user, run+" -A")
	for _, g := range []*gadget{own, all} {
		g.wait("it runs", func() bool { return g.tables > 0 })
	}
	holds := c.fill(t)
	requireOnly(t, own, "team-a", holds)
	all.wait("both teams, as docs/guides/kubernetes.md warns", func() bool {
		for p, bytes := range holds {
			if all.inuse()[p] != bytes {
				return false
			}
		}
		return true
	})
}
