// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
)

const (
	// prometheusVariable has the directory of Debian's Prometheus (test/support/fixtures/prometheus.sh).
	prometheusVariable = "PROMETHEUS"
	// pyroscopeVariable has Pyroscope's program (make build/backends/pyroscope).
	pyroscopeVariable = "PYROSCOPE"
	// exporterNodes is how many nodes one exporter follows (docs/reference/scale.md).
	exporterNodes = 300
)

// unlimited lets Pyroscope take series and bytes of any number of nodes.
var unlimited = []string{"-ingester.max-global-series-per-tenant=0", "-distributor.ingestion-rate-limit-mb=1000", "-distributor.ingestion-burst-size-mb=1000"}

// TestServerFigures measures what Prometheus takes for the series of all nodes, with the rules that
// judge ranks and the alerts, and Pyroscope for their profiles. Tables come each five seconds, so that
// two cores suffice for the exporters of a thousand nodes, too: both servers get as much as from tables of each
// second. Each exporter has nodes of its own, and exports the metrics of their ranks, as the nodes themselves may.
func TestServerFigures(t *testing.T) {
	bin := os.Getenv(prometheusVariable)
	if bin == "" {
		t.Skipf("measures, in make test-long only: $%s is not set", prometheusVariable)
	}
	requireBuilt(t)
	nodes := nodesOr(t, exporterNodes)
	f, err := simnodes.New(simnodes.Config{Seed: 1, Nodes: nodes, Jobs: nodes / 5, MaxRanks: 4096 * nodes / 1000,
		Interval: 5 * time.Second, Fault: time.Hour})
	require.NoError(t, err)
	simulated := serve(t, f)
	var args []string
	profiles := startRealPyroscope(t)
	if profiles != nil {
		args = append(args, "--pyroscope-url", profiles.url)
	}
	var exporters []*exporter
	var targets []string
	for some := range slices.Chunk(simulated.Addresses, exporterNodes) {
		address := loopback.FreeAddress(t)
		targets = append(targets, fmt.Sprintf("%q", address))
		exporters = append(exporters, start(t, some, append([]string{"--metrics-listen", address}, args...)...))
	}
	time.Sleep(20 * time.Second) // all are connected to
	every := 15 * time.Second
	if len(targets) > 1 {
		every = 30 * time.Second // the exporters and the servers share this machine
	}
	prometheus := startPrometheus(t, bin, targets, every)
	servers := []*measured{prometheus}
	if profiles != nil {
		servers = append(servers, profiles)
	}

	time.Sleep(3 * every) // the first scrapes make the series
	for _, s := range servers {
		s.begin(t)
	}
	time.Sleep(2 * time.Minute)
	for _, s := range servers {
		s.end(t, nodes)
	}
	evaluated, _ := loopback.Sum(t, prometheus.address, "prometheus_rule_group_last_duration_seconds")
	scraped := value(t, prometheus.address, "prometheus_tsdb_head_series")
	t.Logf("%d nodes, %d exporters: Prometheus has %.0f series; its rules take %.2f s of each %v, the longest scrape %.1f s", nodes,
		len(exporters), scraped, evaluated, every, prometheus.query(t, "max(scrape_duration_seconds)"))
	require.EqualValues(t, 1, prometheus.query(t, "min(up)"), "a scrape failed")
	require.Greater(t, scraped, 300*float64(nodes), "not all series were scraped")
	for _, e := range exporters {
		require.Zero(t, e.logged("Pyroscope"), "profiles were not sent")
		e.end()
	}
	for _, s := range servers {
		s.stop(t, nodes)
	}
}

// measured is a server in a process of its own.
type measured struct {
	name, url, address, dir string
	cmd                     *exec.Cmd
	log                     bytes.Buffer
	started                 time.Time
	before                  taken
	began                   time.Time
}

func startPrometheus(t *testing.T, bin string, targets []string, every time.Duration) *measured {
	t.Helper()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	m := &measured{name: "Prometheus", address: loopback.FreeAddress(t), dir: t.TempDir()}
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, prometheusConfig, every, root, strings.Join(targets, ", ")), 0o600))
	m.run(t, exec.Command(filepath.Join(bin, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+m.dir,
		"--web.listen-address="+m.address, "--log.level=warn"))
	return m
}

const prometheusConfig = `global: {scrape_interval: %[1]v, evaluation_interval: %[1]v, scrape_timeout: %[1]v}
rule_files: [%[2]s/dashboards/nccl.yaml, %[2]s/dashboards/alerts.yaml]
scrape_configs:
  - job_name: gpu-exporter
    static_configs: [{targets: [%[3]s]}]
`

// startRealPyroscope returns nil where its program is not given.
func startRealPyroscope(t *testing.T) *measured {
	t.Helper()
	program := os.Getenv(pyroscopeVariable)
	if program == "" {
		t.Logf("$%s is not set: Pyroscope is not measured", pyroscopeVariable)
		return nil
	}
	m := &measured{name: "Pyroscope", dir: t.TempDir(), address: loopback.FreeAddress(t)}
	m.url = "http://" + m.address
	script, err := filepath.Abs("../../../scripts/pyroscope.sh")
	require.NoError(t, err)
	cmd := exec.Command(script, append([]string{program}, unlimited...)...) // which becomes the program
	_, port, _ := strings.Cut(m.address, ":")
	cmd.Env = append(os.Environ(), "PYROSCOPE_PORT="+port, "PYROSCOPE_DATA="+m.dir)
	m.run(t, cmd)
	require.Eventually(t, func() bool {
		response, err := http.Get(m.url + "/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, time.Minute, time.Second, "Pyroscope does not get ready")
	return m
}

// run starts the program, and ends it after the test.
func (m *measured) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stderr = &m.log
	require.NoError(t, cmd.Start())
	m.cmd, m.started = cmd, time.Now()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text := m.log.String(); t.Failed() {
			t.Logf("%s: %s", m.name, text[max(0, len(text)-2000):])
		}
	})
}

// query returns the only value of an instant query to Prometheus.
func (m *measured) query(t *testing.T, query string) float64 {
	t.Helper()
	response, err := http.Get("http://" + m.address + "/api/v1/query?query=" + url.QueryEscape(query))
	require.NoError(t, err)
	defer response.Body.Close()
	var answer struct {
		Data struct{ Result []struct{ Value []any } }
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	require.Len(t, answer.Data.Result, 1, query)
	v, err := strconv.ParseFloat(answer.Data.Result[0].Value[1].(string), 64)
	require.NoError(t, err)
	return v
}

func (m *measured) begin(t *testing.T) {
	t.Helper()
	m.before, m.began = takenBy(t, m.cmd.Process.Pid), time.Now()
}

func (m *measured) end(t *testing.T, nodes int) {
	t.Helper()
	after, took := takenBy(t, m.cmd.Process.Pid), time.Since(m.began)
	t.Logf("%d nodes: %s takes %.2f processors and %d MiB (%d at most)",
		nodes, m.name, float64(after.cpu-m.before.cpu)/float64(took), after.mb, after.resident)
}

// stop ends the server, which writes what it has in memory to its disk then.
func (m *measured) stop(t *testing.T, nodes int) {
	t.Helper()
	took := time.Since(m.started)
	require.NoError(t, m.cmd.Process.Signal(os.Interrupt))
	_ = m.cmd.Wait()
	stored := float64(m.size(t)) / took.Seconds() * (24 * time.Hour).Seconds() / float64(nodes) / (1 << 20)
	t.Logf("%d nodes: %s has %.1f MiB on its disk after %v, %.1f MiB per node and day", nodes, m.name,
		float64(m.size(t))/(1<<20), took.Round(time.Second), stored)
	require.Positive(t, stored, "it stores nothing")
}

// size of what it has stored.
func (m *measured) size(t *testing.T) (bytes int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(m.dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it moves its files meanwhile
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	}))
	return bytes
}
