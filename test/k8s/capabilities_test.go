// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// capabilitiesVariable asks for the table of capabilities: it takes a minute for each.
const capabilitiesVariable = "CAPABILITIES"

// capabilities takes one at a time from the daemon, and tells what then fails. The
// table is for docs/kubernetes.md, which names those that are needed.
func capabilities(t *testing.T, c *cluster) {
	if os.Getenv(capabilitiesVariable) == "" {
		t.Skip(capabilitiesVariable + " is empty: each capability takes a minute")
	}
	const path = "/spec/template/spec/containers/0/securityContext/capabilities/add"
	var all []string
	out := c.do(t, "kubectl get ds -n gadget gadget -o jsonpath='{.spec.template.spec.containers[0].securityContext.capabilities.add}'")
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.NotEmpty(t, all)
	set := func(list []string) {
		value, err := json.Marshal(list)
		require.NoError(t, err)
		c.do(t, `kubectl patch ds -n gadget gadget --type=json -p '[{"op": "replace", "path": "`+path+`", "value": `+string(value)+`}]'`)
	}
	defer set(all)
	var missed []string
	for i, without := range all {
		rest := append(append([]string{}, all[:i]...), all[i+1:]...)
		began := time.Now()
		set(rest)
		verdict := c.worksAs(t)
		t.Logf("without %-16s %s (%v)", without, verdict, time.Since(began).Round(time.Second))
		if verdict != "works" {
			missed = append(missed, without)
		}
	}
	t.Logf("needed one by one: %s", strings.Join(missed, ", "))
	var kept []string
	for _, name := range all {
		for _, needed := range missed {
			if name == needed {
				kept = append(kept, name)
			}
		}
	}
	set(kept)
	verdict := c.worksAs(t)
	t.Logf("with these only: %s", verdict)
	require.Equal(t, "works", verdict)
}

// worksAs tells whether the daemon, as it is deployed now, counts a new pod's memory.
func (c *cluster) worksAs(t *testing.T) string {
	t.Helper()
	const lastWords = "kubectl logs -n gadget ds/gadget --tail=3 2>&1 || kubectl logs -n gadget ds/gadget -p --tail=3"
	if _, err := c.try(c.admin, "kubectl rollout status -n gadget ds/gadget --timeout 150s"); err != nil {
		said, _ := c.try(c.admin, lastWords)
		return "the daemon does not start: " + strings.TrimSpace(said)
	}
	g := c.gadget(t, c.admin, c.step("namespace")+" -o json")
	defer g.stop()
	if !g.until(2*time.Minute, func() bool { return g.tables > 0 }) {
		return "the gadget does not start: " + strings.TrimSpace(g.stderr.String())
	}
	c.do(t, "kubectl rollout restart -n team-a deploy/chat && kubectl rollout status -n team-a deploy/chat --timeout 8m >/dev/null")
	p := c.podOf(t, "team-a", "app=chat")
	held := c.holds(t, p, 1)
	if !g.until(30*time.Second, func() bool { return g.inuse()[p] == held }) {
		g.mu.Lock()
		defer g.mu.Unlock()
		said, _ := c.try(c.admin, lastWords)
		return "wrong rows: " + strings.TrimSpace(g.stderr.String()+" "+said)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.rows {
		if r.pod() == p && strings.Contains(r.Stack, "_allocate_kv_cache_tensors (inference.py:") {
			return "works"
		}
	}
	return "rows without names"
}
