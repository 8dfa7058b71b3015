// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// processes are the ids of a pod's processes in the latest table.
func (g *gadget) processes(p pod) map[uint64]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := map[uint64]bool{}
	for _, r := range g.rows {
		if r.pod() == p {
			ids[r.Process] = true
		}
	}
	return ids
}

// requireEnded checks that memory of ended processes is freed implicitly, and their rows stay.
func requireEnded(t *testing.T, g *gadget, processes map[uint64]bool, held uint64) {
	t.Helper()
	g.wait("the rows of a pod that has ended", func() bool {
		var inuse, implicit uint64
		found := map[uint64]bool{}
		for _, r := range g.rows {
			if processes[r.Process] {
				inuse += r.InuseBytes
				implicit += r.ImplicitBytes
				found[r.Process] = true
			}
		}
		return inuse == 0 && implicit >= held && len(found) == len(processes)
	})
}

// requireNoRestart: the daemon has not crashed.
func (c *cluster) requireNoRestart(t *testing.T) {
	t.Helper()
	out := c.do(t, "kubectl get pods -n gadget -l k8s-app=gadget -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}'")
	require.Equal(t, "0", strings.TrimSpace(out), "restarts of the daemon")
}

// deleted: a pod is deleted while it is recorded, and the one that follows it is seen.
func deleted(t *testing.T, c *cluster) {
	g := c.gadget(t, c.admin, c.step("watch")+" -o json")
	victim := c.podOf(t, "team-b", "app=vision")
	held := c.holds(t, victim, 2)
	g.wait("the pod", func() bool { return g.inuse()[victim] == held })
	processes := g.processes(victim)
	require.Len(t, processes, 2)

	c.do(t, "kubectl delete pod -n team-b "+victim.name)
	requireEnded(t, g, processes, held)
	holds := c.settled(t)
	for p, bytes := range holds {
		g.wait("what "+p.name+" holds", func() bool { return g.inuse()[p] == bytes })
	}
	c.requireNoRestart(t)
}

// drained evicts the node's pods; the daemon stays, and pods that return are traced.
func drained(t *testing.T, c *cluster) {
	g := c.gadget(t, c.admin, c.step("watch")+" -o json")
	p := c.podOf(t, "team-a", "app=chat")
	held := c.holds(t, p, 1)
	g.wait("the pod", func() bool { return g.inuse()[p] == held })
	processes := g.processes(p)

	c.do(t, "kubectl drain "+nodeName+" --ignore-daemonsets --delete-emptydir-data --timeout 5m")
	requireEnded(t, g, processes, held)
	c.do(t, "kubectl uncordon "+nodeName)
	for p, bytes := range c.settled(t) {
		g.wait("what "+p.name+" holds", func() bool { return g.inuse()[p] == bytes })
	}
	c.requireNoRestart(t)
}

// ended: the page's last step of its first chapter.
func ended(t *testing.T, c *cluster) {
	require.Contains(t, c.do(t, "kubectl gadget list"), "gpu-memory")
	c.do(t, c.step("delete"))
	require.NotContains(t, c.do(t, "kubectl gadget list"), "gpu-memory")
}
