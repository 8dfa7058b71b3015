// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
)

// prometheusVariable has the directory of Debian's Prometheus (test/support/fixtures/prometheus.sh).
const prometheusVariable = "PROMETHEUS"

const prometheusConfig = `global: {scrape_interval: 15s, evaluation_interval: 15s}
rule_files: [%s/dashboards/nccl.yaml, %s/dashboards/alerts.yaml]
scrape_configs:
  - job_name: gpu-exporter
    static_configs: [{targets: [%q]}]
`

// TestPrometheusFigures measures what Prometheus takes for the series of one exporter, with the
// rules that judge ranks and the alerts.
func TestPrometheusFigures(t *testing.T) {
	bin := os.Getenv(prometheusVariable)
	if bin == "" {
		t.Skipf("measures, in make test-long only: $%s is not set", prometheusVariable)
	}
	requireBuilt(t)
	nodes := nodesOr(t, 300)
	f, err := simnodes.New(simnodes.Config{Seed: 1, Nodes: nodes, Jobs: nodes / 5, MaxRanks: 4096 * nodes / 1000, Fault: time.Hour})
	require.NoError(t, err)
	server, address, own := serve(t, f), loopback.FreeAddress(t), loopback.FreeAddress(t)
	e := start(t, server.Addresses, "--metrics-listen", address)
	time.Sleep(15 * time.Second) // all are connected to

	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, prometheusConfig, root, root, address), 0o600))
	p := exec.Command(filepath.Join(bin, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+own, "--log.level=warn")
	p.Stderr = os.Stderr
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	time.Sleep(30 * time.Second) // the first scrapes make the series
	before, began := takenBy(t, p.Process.Pid), time.Now()
	time.Sleep(60 * time.Second)
	after, took := takenBy(t, p.Process.Pid), time.Since(began)
	evaluated, _ := loopback.Sum(t, own, "prometheus_rule_group_last_duration_seconds")
	series := value(t, own, "prometheus_tsdb_head_series")
	require.Greater(t, series, 300*float64(nodes), "not all series were scraped")
	t.Logf("%d nodes: Prometheus has %.0f series, and takes %.2f processors and %d MiB (%d at most); its rules take %.2f s of each 15 s", nodes,
		series, float64(after.cpu-before.cpu)/float64(took), after.mb, after.resident, evaluated)
	e.end()
}
