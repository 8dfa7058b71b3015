// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
)

// inspektorGadget is the version of the daemon and of kubectl-gadget, as in go.mod.
const inspektorGadget = "v0.55.0"

// TestKubernetes is one node's life, in the order of docs/guides/kubernetes.md: its tests
// rely on earlier ones, so TESTS, which selects those to run, must name these, too.
func TestKubernetes(t *testing.T) {
	if os.Getenv(wanted) == "" {
		t.Skip("K8S is empty: a cluster takes minutes; make test-k8s")
	}
	if os.Geteuid() != 0 {
		t.Skipf("needs root for network namespaces; runs as user %d", os.Geteuid())
	}
	kernel := os.Getenv("KERNEL")
	require.NotEmpty(t, kernel, "KERNEL: which, e.g. 6.1")
	began := time.Now()
	c := newCluster(t)
	c.useExamples()
	c.startControlPlane()
	c.pushImages()
	c.startNode(kernel)

	t.Cleanup(c.logState)

	user := time.Now()
	c.do(t, c.step("push"))
	c.do(t, c.step("deploy")+" --timeout 8m")
	t.Logf("Inspektor Gadget deployed %v after the start", time.Since(began).Round(time.Second))
	if !t.Run("TwoPodsInTwoNamespaces", func(t *testing.T) { twoPods(t, c, user) }) {
		return
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"PodIsDeletedWhileRecorded", deleted},
		{"NodeIsDrained", drained},
		{"RecordingIsDeleted", ended},
		{"Selectors", selectors},
		{"Users", users},
		{"Capabilities", capabilities},
		{"Daemon", daemon},
		{"Soak", soak},
		{"Chart", chart},
	} {
		if only := strings.Fields(os.Getenv("TESTS")); len(only) > 0 && !slices.Contains(only, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// twoPods is the page's first chapter up to the gadget's start.
func twoPods(t *testing.T, c *cluster, began time.Time) {
	c.do(t, c.step("record"))
	g := c.gadget(t, c.admin, c.step("watch")+" -o json")
	g.wait("it records", func() bool { return g.tables > 0 })
	t.Logf("it records %v after the first step", time.Since(began).Round(time.Second))
	c.do(t, c.step("apply"))
	c.do(t, "kubectl rollout status -n team-a deploy/chat --timeout 5m; kubectl rollout status -n team-b deploy/vision --timeout 5m")

	a, b := c.podOf(t, "team-a", "app=chat"), c.podOf(t, "team-b", "app=vision")
	want := map[pod]uint64{a: c.holds(t, a, 1), b: c.holds(t, b, 2)}
	g.wait("both pods' memory", func() bool {
		got := g.inuse()
		return got[a] == want[a] && got[b] == want[b]
	})
	t.Logf("%v after the first step: %s %d bytes, %s %d bytes", time.Since(began).Round(time.Second),
		a.name, want[a], b.name, want[b])
	// Not all: these programs may not wait for a page of the interpreter that is not in
	// memory (docs/reference/stock-ig.md).
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, bytes := range want {
		t.Logf("%s: %d of %d bytes have a line of Python; %v", p.name, g.named(p), bytes, g.drops)
		require.Greater(t, g.named(p), bytes/4)
		var cached uint64
		const cache = "GPUModelRunner._allocate_kv_cache_tensors (inference.py:141)"
		for _, r := range g.rows {
			if r.pod() == p && r.Frame == cache {
				cached += r.InuseBytes
			}
		}
		require.Contains(t, []uint64{512 << 20, 2048 << 20, 2 * 2048 << 20}, cached, cache)
	}
}

// podOf is the one pod that a selector matches.
func (c *cluster) podOf(t *testing.T, namespace, selector string) pod {
	t.Helper()
	var names []string
	c.wait("one pod of "+selector, func() error {
		out, err := c.try(c.admin, "kubectl get pods -n "+namespace+" -l "+selector+
			" --field-selector=status.phase=Running -o jsonpath='{.items[*].metadata.name}'")
		if names = strings.Fields(out); err == nil && len(names) != 1 {
			err = fmt.Errorf("there are %v", names) // one may be ending
		}
		return err
	})
	return pod{namespace, names[0]}
}

// holds waits for the summaries of a pod's workers and returns their memory in use, by
// their log and the driver's journal.
func (c *cluster) holds(t *testing.T, p pod, workers int) uint64 {
	t.Helper()
	var logged uint64
	c.wait("the summary of "+p.name, func() error {
		out, err := c.try(c.admin, "kubectl logs -n "+p.namespace+" "+p.name+" | grep in_use_bytes")
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) < workers {
			return io.ErrUnexpectedEOF
		}
		logged = 0
		for _, line := range lines {
			var summary struct {
				InUse map[string]uint64 `json:"in_use_bytes"`
			}
			if err := json.Unmarshal([]byte(line), &summary); err != nil {
				return err
			}
			for _, bytes := range summary.InUse {
				logged += bytes
			}
		}
		return nil
	})
	var counted uint64
	for _, total := range c.journal(t, p).Totals {
		require.Zero(t, total.Lost)
		counted += total.InUseBytes()
	}
	require.Equal(t, counted, logged, "the workload's own count of %s", p.name)
	require.NotZero(t, counted)
	return counted
}

// journal reads the journal of a pod's simulated driver.
func (c *cluster) journal(t *testing.T, p pod) *journal.Summary {
	t.Helper()
	const pack = `import gzip, sys, tarfile
z = gzip.GzipFile(fileobj=sys.stdout.buffer, mode="wb", compresslevel=1)
f = tarfile.open(fileobj=z, mode="w|")
f.add("/journal", "journal"); f.close(); z.close()`
	cmd := c.command(c.admin, "kubectl exec -n "+p.namespace+" "+p.name+" -- python3 -c '"+pack+"'")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	dir := t.TempDir()
	unzipped, err := gzip.NewReader(out)
	require.NoError(t, err)
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if header.Typeflag != tar.TypeReg {
			continue
		}
		file, err := os.Create(filepath.Join(dir, filepath.Base(header.Name)))
		require.NoError(t, err)
		_, err = io.Copy(file, files)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, journals)
	sum, err := journal.Summarize(journals)
	require.NoError(t, err)
	return sum
}
