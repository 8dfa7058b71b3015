// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
)

// TestViews is metrics by namespace with a real API server: its TokenReviews and SubjectAccessReviews,
// the rights that the chart gives the exporter and those of examples/kubernetes/metrics-readers.yaml.
// Two shards of gpu-exporter collect from simulated daemons; no node is needed.
func TestViews(t *testing.T) {
	if os.Getenv(wanted) == "" {
		t.Skip("K8S is empty: Kubernetes has to be built; make test-k8s-views")
	}
	if os.Geteuid() != 0 {
		t.Skipf("needs root for network namespaces; runs as user %d", os.Geteuid())
	}
	const shards = 2
	c := newCluster(t)
	c.useExamples()
	c.startControlPlane()
	v := c.startViews(t, shards)

	// As many bytes and ranks as the fleet has.
	memory := map[string]float64{"team-a": 8, "team-b": 40}
	for namespace, processes := range memory {
		memory[namespace] = processes * (1 + 2 + 3 + 4) * (64 << 10)
	}
	prometheus := c.token(t, "monitoring", "prometheus-k8s")
	c.wait("Prometheus gets the whole cluster", func() error {
		return v.get(t, prometheus).is(memory, true)
	})
	reader := c.token(t, "team-a", "reader")
	only := map[string]float64{"team-a": memory["team-a"]}
	own := v.get(t, reader)
	require.NoError(t, own.is(only, false))
	require.Len(t, own.ranks, 1)
	require.Greater(t, own.ranks["team-a"], 0)
	c.requireDocumented(t, v, only)

	other := c.token(t, "team-b", "reader")
	require.NoError(t, v.get(t, other).is(map[string]float64{}, false))
	for name, token := range map[string]string{
		"none": "", "another text": "a.b.c", "another audience": c.token(t, "team-a", "reader", "--audience", "other"),
	} {
		require.Equal(t, http.StatusUnauthorized, v.get(t, token).status, "token: %s", name)
	}

	// A right that is given holds after ten seconds, one that is removed for a minute.
	c.do(t, "kubectl create rolebinding readers -n team-b --clusterrole=gpu-metrics-reader --serviceaccount=team-b:reader")
	given := c.until(t, func() error {
		return v.get(t, other).is(map[string]float64{"team-b": memory["team-b"]}, false)
	})
	c.do(t, "kubectl delete rolebinding -n team-a gpu-metrics-reader")
	removed := c.until(t, func() error { return v.get(t, reader).is(map[string]float64{}, false) })
	t.Logf("a right holds %v after it was given, and %v after it was removed", given, removed)
	require.Less(t, given, 15*time.Second)
	require.Less(t, removed, 75*time.Second)

	c.stopServer()
	c.until(t, func() error {
		if s := v.get(t, prometheus).status; s != http.StatusServiceUnavailable {
			return fmt.Errorf("status %d without an API server", s)
		}
		return nil
	})
}

// views are the shards' endpoints.
type views struct {
	addresses []string
	client    *http.Client
}

// startViews installs the chart, whose pods no node runs, and starts the exporter with their
// ServiceAccount.
func (c *cluster) startViews(t *testing.T, shards int) *views {
	t.Helper()
	fleet, err := simnodes.New(simnodes.Config{Seed: 5, Nodes: 3, Jobs: 2, MaxRanks: 8, Fault: time.Hour, Namespaces: []string{"team-a", "team-b"}})
	require.NoError(t, err)
	server, err := fleet.Serve()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	for _, namespace := range []string{"team-a", "team-b", "monitoring", "gadget", "gpu-gadgets"} {
		c.do(t, "kubectl create namespace "+namespace)
	}
	c.do(t, "kubectl create serviceaccount -n monitoring prometheus-k8s; kubectl create serviceaccount -n team-b reader")
	c.do(t, "kubectl apply -f examples/kubernetes/metrics-readers.yaml")
	c.do(t, "helm install gpu build/charts/gpu-gadgets-0.1.0.tgz --namespace gpu-gadgets "+
		"--set gpuObservability.enabled=false,exporter.enabled=true,exporter.authorize=kubernetes,exporter.tlsSecret=exporter-tls,exporter.shards="+fmt.Sprint(shards))
	kubeconfig := c.ca.kubeconfig(t, "exporter", "token: "+c.token(t, "gpu-gadgets", "gpu-gpu-gadgets-exporter"), "gpu-gadgets")
	c.ca.issue(t, "exporter", pkix.Name{CommonName: "exporter"}, "127.0.0.1")

	trusted := x509.NewCertPool()
	trusted.AddCert(c.ca.certificate)
	v := &views{client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}, Timeout: time.Minute}}
	program, err := loopback.Exporter()
	require.NoError(t, err)
	for i := range shards {
		address := loopback.FreeAddress(t)
		v.addresses = append(v.addresses, address)
		c.startProgram(program, fmt.Sprintf("exporter-%d", i), "--address", strings.Join(server.Addresses, ","),
			"--shard", fmt.Sprintf("%d/%d", i, shards), "--kubeconfig", kubeconfig, "--metrics-listen", address,
			"--metrics-listen-cert", "exporter.crt", "--metrics-listen-key", "exporter.key", "--metrics-listen-authorize", "kubernetes")
	}
	return v
}

// token of a ServiceAccount.
func (c *cluster) token(t *testing.T, namespace, account string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(c.do(t, "kubectl create token -n "+namespace+" "+account+" "+strings.Join(args, " ")))
}

// until waits, and returns how long.
func (c *cluster) until(t *testing.T, condition func() error) time.Duration {
	t.Helper()
	began := time.Now()
	c.wait("a change of rights", condition)
	return time.Since(began).Round(100 * time.Millisecond)
}

// answer has the series that all shards together send a reader.
type answer struct {
	status int                // the last that is not 200
	memory map[string]float64 // bytes in use by namespace
	ranks  map[string]int     // of communicators
	others int                // series without a namespace
}

func newAnswer() answer {
	return answer{status: http.StatusOK, memory: map[string]float64{}, ranks: map[string]int{}}
}

func (v *views) get(t *testing.T, token string) answer {
	t.Helper()
	a := newAnswer()
	for _, address := range v.addresses {
		request, err := http.NewRequest(http.MethodGet, "https://"+address+"/metrics", nil)
		require.NoError(t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := v.client.Do(request)
		if err != nil {
			return answer{} // not yet
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		require.NoError(t, err)
		if response.StatusCode != http.StatusOK {
			a.status = response.StatusCode
			continue
		}
		a.add(t, body)
	}
	return a
}

func (a *answer) add(t *testing.T, body []byte) {
	t.Helper()
	all, err := loopback.Parse(t, bytes.NewReader(body))
	require.NoError(t, err)
	for _, s := range all {
		_, namespace, _ := strings.Cut(s.Labels, `k8s_namespace_name="`)
		namespace, _, _ = strings.Cut(namespace, `"`)
		switch {
		case namespace == "":
			a.others++
		case s.Name == "gpu_memory_inuse_bytes":
			a.memory[namespace] += s.Value
		case s.Name == "nccl_communicator_size":
			a.ranks[namespace]++
		}
	}
}

// is reports how the answer differs from the memory of those namespaces, with or without series of none.
func (a answer) is(memory map[string]float64, others bool) error {
	if a.status != http.StatusOK || fmt.Sprint(a.memory) != fmt.Sprint(memory) || (a.others > 0) != others {
		return fmt.Errorf("status %d, bytes %v and %d series without a namespace, not bytes %v", a.status, a.memory, a.others, memory)
	}
	return nil
}

// requireDocumented: the commands of docs/guides/kubernetes.md print the team's series.
func (c *cluster) requireDocumented(t *testing.T, v *views, only map[string]float64) {
	t.Helper()
	a := newAnswer()
	for _, address := range v.addresses {
		text := strings.ReplaceAll(c.step("views"), "gpu-gpu-gadgets-exporter.gpu-gadgets.svc:9464", address)
		require.Contains(t, text, address)
		a.add(t, []byte(c.do(t, text)))
	}
	require.NoError(t, a.is(only, false))
}
