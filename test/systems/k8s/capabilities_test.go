// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// capabilitiesVariable enables the tables of capabilities and mounts, which take minutes
// each.
const capabilitiesVariable = "CAPABILITIES"

// works is the verdict on a working DaemonSet.
const works = "works"

// rights are those of a DaemonSet's container on the node: names of capabilities, and
// container paths of host mounts.
type rights struct {
	namespace, name string // of the DaemonSet
	capabilities    []string
	mounts          []map[string]any // those of the host
	others          []map[string]any
}

// rightsOf reads them.
func (c *cluster) rightsOf(t *testing.T, namespace, name string) rights {
	t.Helper()
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					Volumes    []map[string]any
					Containers []struct {
						VolumeMounts    []map[string]any
						SecurityContext struct{ Capabilities struct{ Add []string } }
					}
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(c.do(t, "kubectl get ds -o json -n "+namespace+" "+name)), &set))
	spec := set.Spec.Template.Spec
	r := rights{namespace: namespace, name: name, capabilities: spec.Containers[0].SecurityContext.Capabilities.Add}
	for _, mount := range spec.Containers[0].VolumeMounts {
		isHosts := slices.ContainsFunc(spec.Volumes, func(v map[string]any) bool {
			return v["name"] == mount["name"] && v["hostPath"] != nil
		})
		if isHosts {
			r.mounts = append(r.mounts, mount)
		} else {
			r.others = append(r.others, mount)
		}
	}
	require.NotEmpty(t, r.capabilities)
	require.NotEmpty(t, r.mounts)
	return r
}

// names of all: SYS_ADMIN, /host, …
func (r rights) names() (all []string) {
	all = append(all, r.capabilities...)
	for _, m := range r.mounts {
		all = append(all, m["mountPath"].(string))
	}
	return all
}

// give gives the container those of its rights that keep wants.
func (c *cluster) give(t *testing.T, r rights, keep func(name string) bool) {
	t.Helper()
	var capabilities []string
	for _, name := range r.capabilities {
		if keep(name) {
			capabilities = append(capabilities, name)
		}
	}
	mounts := slices.Clone(r.others)
	for _, m := range r.mounts {
		if keep(m["mountPath"].(string)) {
			mounts = append(mounts, m)
		}
	}
	const container = "/spec/template/spec/containers/0/"
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": container + "securityContext/capabilities/add", "value": capabilities},
		{"op": "replace", "path": container + "volumeMounts", "value": mounts},
	})
	require.NoError(t, err)
	c.do(t, "kubectl patch ds -n "+r.namespace+" "+r.name+" --type=json -p '"+string(patch)+"'")
}

// requireRights removes one right at a time from a DaemonSet, and records what fails then. With
// only the rights that it needed, it must work. The tables are for docs/guides/kubernetes.md.
func (c *cluster) requireRights(t *testing.T, namespace, name string, verdict func() string) {
	t.Helper()
	r := c.rightsOf(t, namespace, name)
	defer c.give(t, r, func(string) bool { return true })
	needed := map[string]bool{}
	for _, without := range r.names() {
		began := time.Now()
		c.give(t, r, func(name string) bool { return name != without })
		said := c.started(t, r)
		if said == works {
			said = verdict()
		}
		t.Logf("without %-16s %s (%v)", without, said, time.Since(began).Round(time.Second))
		needed[without] = said != works
	}
	c.give(t, r, func(name string) bool { return needed[name] })
	said := c.started(t, r)
	if said == works {
		said = verdict()
	}
	t.Logf("with %v only: %s", needed, said)
	require.Equal(t, works, said)
}

// started waits until the DaemonSet's pod of now is ready, or has ended.
func (c *cluster) started(t *testing.T, r rights) string {
	t.Helper()
	set := " -n " + r.namespace + " ds/" + r.name
	generation := c.do(t, `kubectl get`+set+` -o jsonpath='{.metadata.annotations.deprecated\.daemonset\.template\.generation}'`)
	pod := " -n " + r.namespace + " -l pod-template-generation=" + generation
	ended := false
	for began := time.Now(); !ended && time.Since(began) < waitLimit; {
		if _, err := c.try(c.admin, "kubectl rollout status --timeout 10s"+set); err == nil {
			return works
		}
		restarts, _ := c.try(c.admin, "kubectl get pods"+pod+" -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}'")
		ended = strings.Trim(restarts, "0 ") != ""
	}
	said, _ := c.try(c.admin, "kubectl logs --tail=2"+pod)
	if ended {
		said, _ = c.try(c.admin, "kubectl logs --tail=2 -p"+pod)
	}
	return "it does not start: " + strings.TrimSpace(said)
}

// capabilities that Inspektor Gadget's own daemon needs for cuda_alloc.
func capabilities(t *testing.T, c *cluster) {
	if os.Getenv(capabilitiesVariable) == "" {
		t.Skip(capabilitiesVariable + " is empty: each capability takes minutes")
	}
	c.requireRights(t, "gadget", "gadget", func() string {
		g := c.gadget(t, c.admin, c.step("namespace")+" -o json")
		defer g.stop()
		if !g.until(waitLimit, func() bool { return g.tables > 0 }) {
			return "the gadget does not start: " + strings.TrimSpace(g.stderr.String())
		}
		p, held := c.another(t)
		if !g.until(time.Minute, func() bool { return g.inuse()[p] == held }) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return "wrong rows: " + strings.TrimSpace(g.stderr.String())
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.named(p) == 0 {
			return "rows without names"
		}
		return works
	})
}

// chartRights are those that the chart's pods need, for a pod of a user who is not root.
func (c *cluster) chartRights(t *testing.T, p *pyroscope) {
	c.do(t, "kubectl scale -n team-b deploy/vision --replicas=0")
	c.do(t, `kubectl patch deploy -n team-a chat -p '{"spec": {"template": {"spec": {"securityContext": {"runAsUser": 1000}}}}}'`)
	c.requireRights(t, "gpu-gadgets", "gpu-gpu-gadgets", func() string {
		pod, held := c.another(t)
		said := "no profile"
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Second) {
			got, functions := p.inuse()
			switch {
			case got[pod] == 0:
			case got[pod] != held:
				said = "wrong profiles"
			case !functions["GPUModelRunner._allocate_kv_cache_tensors"]:
				said = "profiles without names"
			default:
				return works
			}
		}
		return said
	})
}

// another restarts team-a's pod, and returns its memory in use.
func (c *cluster) another(t *testing.T) (p pod, held uint64) {
	t.Helper()
	c.do(t, "kubectl rollout restart -n team-a deploy/chat && kubectl rollout status -n team-a deploy/chat --timeout 8m >/dev/null")
	p = c.podOf(t, "team-a", "app=chat")
	return p, c.holds(t, p, 1)
}
