// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

// Package prometheus runs the queries of the dashboards, and the alerts, on a real
// Prometheus that scrapes our endpoint: `make test-prometheus`. The rows are made
// up; an answer without data fails.
package prometheus

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/dashboards"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

const bin = "../../../build/fixtures/prometheus/root/usr/bin"

// server is a running Prometheus.
type server struct{ base string }

func start(t *testing.T, target string) *server {
	t.Helper()
	program := filepath.Join(bin, "prometheus")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("no Prometheus: run test/support/fixtures/prometheus.sh first: %v", err)
	}
	rules, err := filepath.Abs("../../../dashboards/alerts.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: ig-gpu
    static_configs: [{targets: ['%s']}]
`, rules, target)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	address := loopback.FreeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	command := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("Prometheus said:\n%s", text)
		}
	})
	s := &server{"http://" + address}
	require.Eventually(t, func() bool {
		response, err := http.Get(s.base + "/-/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, time.Minute, 200*time.Millisecond, "Prometheus does not get ready")
	return s
}

type result struct {
	Metric map[string]string
	Value  [2]any
}

func (s *server) get(path string, into any) error {
	response, err := http.Get(s.base + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return json.Unmarshal(body, into)
}

// query is the answer to one PromQL expression now.
func (s *server) query(expression string) ([]result, error) {
	var answer struct{ Data struct{ Result []result } }
	err := s.get("/api/v1/query?query="+url.QueryEscape(expression), &answer)
	return answer.Data.Result, err
}

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// values runs Grafana's label_values.
func (s *server) values(definition string) ([]string, error) {
	m := labelValues.FindStringSubmatch(definition)
	if m == nil {
		return nil, fmt.Errorf("not a label_values query: %s", definition)
	}
	var answer struct{ Data []string }
	err := s.get("/api/v1/label/"+m[2]+"/values?match[]="+url.QueryEscape(m[1]), &answer)
	return answer.Data, err
}

// filled is a query as Grafana sends it when everything is chosen.
func filled(expression string) string {
	return dashboards.Filled(expression, map[string]string{"__rate_interval": "10s", "__range": "5s", "cluster": "prod"})
}

// The dashboard AdvancedGPUObservability of Inspektor Gadget's project, as a
// contract: its variables, its panels' titles and their queries.
const (
	referenceLabels = `cluster=~"$cluster",k8s_namespace=~"$namespace",k8s_podname=~"$pod",host_raw="0"`
	allPods         = `cluster=~"$cluster",k8s_namespace=~"$namespace",host_raw="0"`
)

func active(labels string) string {
	return fmt.Sprintf("mem_alloc_bytes_total{%s} - mem_free_bytes_total{%s} - mem_implicit_free_bytes_total{%s}", labels, labels, labels)
}

var referenceVariables = []string{
	"label_values(mem_alloc_bytes_total, cluster)",
	`label_values(mem_alloc_bytes_total{cluster=~"$cluster"}, k8s_namespace)`,
	`label_values(mem_alloc_bytes_total{cluster=~"$cluster",k8s_namespace=~"$namespace"}, k8s_podname)`,
}

var referencePanels = []struct{ title, expression string }{
	{"GPU Active Memory by Pod", "sum by (k8s_podname, pid) (" + active(referenceLabels) + ")"},
	{"Total GPU Memory", "sum(" + active(allPods) + ")"},
	{"Top GPU Processes", "topk(5, sum by (k8s_podname, pid) (" + active(referenceLabels) + "))"},
	{"GPU Memory Allocation Rate", "sum by (k8s_podname, pid) (rate(mem_alloc_bytes_total{" + referenceLabels + "}[5m]))"},
	{"GPU Memory Free Rate", "sum by (k8s_podname, pid) (rate(mem_free_bytes_total{" + referenceLabels + "}[5m]))"},
	{"GPU Memory Implicit Free Rate", "sum by (k8s_podname, pid) (rate(mem_implicit_free_bytes_total{" + referenceLabels + "}[5m]))"},
	// The seventh panel, the flame graph, queries Pyroscope.
}

func TestDashboardsHaveData(t *testing.T) {
	world := newWorld(t)
	s := start(t, world.address)
	world.run(t, 20*time.Second)
	requireData(t, s)
	requireNumbers(t, s, world)
	requireVendors(t, s)
	requireRules(t, s)
	requireEnd(t, s, world)
}

// requireData checks that each variable and each query has data, with the labels that the
// legend of its panel shows.
func requireData(t *testing.T, s *server) {
	t.Helper()
	definitions := referenceVariables
	for _, v := range dashboards.Variables() {
		definitions = append(definitions, v.Query)
	}
	for _, definition := range definitions {
		got, err := s.values(filled(definition))
		if err != nil || len(got) == 0 || got[0] == "" {
			t.Errorf("variable %s: %v, %v", definition, got, err)
		}
	}
	// labels are those that the panel's legend shows.
	check := func(title, expression string, labels ...string) {
		got, err := s.query(filled(expression))
		if err != nil || len(got) == 0 {
			t.Errorf("%s: no data, error %v\n%s", title, err, expression)
			return
		}
		for _, label := range labels {
			if got[0].Metric[label] == "" {
				t.Errorf("%s: no label %s in %v\n%s", title, label, got[0].Metric, expression)
			}
		}
	}
	for _, p := range referencePanels {
		if strings.Contains(p.expression, "by (k8s_podname, pid)") {
			check(p.title, p.expression, "k8s_podname", "pid")
		} else {
			check(p.title, p.expression)
		}
	}
	legend := regexp.MustCompile(`{{(\w+)}}`)
	n := 0
	for _, row := range dashboards.Rows() {
		for _, p := range row.Panels {
			if p.Kind == dashboards.FlameGraph {
				continue
			}
			for _, q := range p.Queries {
				var labels []string
				for _, m := range legend.FindAllStringSubmatch(q.Legend, -1) {
					labels = append(labels, m[1])
				}
				check(p.Title, q.Expr, labels...)
				n++
			}
		}
	}
	check("annotations", dashboards.Refused)
	require.Greater(t, n, 30, "queries of our own dashboard")
}

// requireNumbers checks that the numbers are those of the rows.
func requireNumbers(t *testing.T, s *server, world *world) {
	t.Helper()
	for expression, want := range map[string]int64{
		`sum(gpu_launches_total)`:                                                 20_010 * world.step.Load(),
		`sum(gpu_kernels_time_seconds_total)`:                                     world.step.Load(),
		`sum(gpu_copied_bytes_total{direction="HtoD"})`:                           4096 * world.step.Load(),
		"sum(" + active(referenceLabels) + ")":                                    world.device(),
		`sum(gpu_memory_inuse_bytes{kind!="host"})`:                               world.device(),
		`sum(gpu_process_memory_parts_bytes)`:                                     world.driver,
		`sum(gpu_process_memory_usage_bytes)`:                                     world.driver,
		`sum(gpu_process_memory_parts_bytes{part="stacks"})`:                      world.device(),
		`count(count by (k8s_podname, pid) (mem_free_bytes_total{host_raw="0"}))`: 2,
	} {
		got, err := s.query(filled(expression))
		require.NoError(t, err)
		require.Len(t, got, 1, expression)
		require.Equal(t, fmt.Sprint(want), plain(got[0].Value[1]), expression)
	}
}

// requireVendors checks that the list of vendors has all, and that panels of GPUs show those that were chosen.
func requireVendors(t *testing.T, s *server) {
	t.Helper()
	for _, v := range dashboards.Variables() {
		if v.Name == "vendor" {
			got, err := s.values(filled(v.Query))
			require.NoError(t, err)
			require.Equal(t, []string{"AMD", "NVIDIA"}, got)
		}
	}
	for chosen, want := range map[string][]string{".*": {"AMD", "NVIDIA"}, "AMD": {"AMD"}, "NVIDIA": {"NVIDIA"}, "another": nil} {
		for _, title := range []string{"Device memory", "Busy"} {
			got, err := s.query(dashboards.Filled(panel(t, title), map[string]string{"vendor": chosen}))
			require.NoError(t, err)
			var vendors []string
			for _, r := range got {
				vendors = append(vendors, r.Metric["hw_vendor"])
			}
			require.ElementsMatch(t, want, vendors, "%s of %s", title, chosen)
		}
	}
	// All rows are of cuda_alloc.
	for chosen, want := range map[string]int{".*": 2, "NVIDIA": 2, "AMD": 0} {
		got, err := s.query(dashboards.Filled(panel(t, "Peak by process"), map[string]string{"vendor": chosen}))
		require.NoError(t, err)
		require.Len(t, got, want, chosen)
	}
}

// requireRules checks that alerts are evaluated, and that those fire for which there is a
// reason.
func requireRules(t *testing.T, s *server) {
	t.Helper()
	var rules struct {
		Data struct {
			Groups []struct {
				Name  string
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	require.NoError(t, s.get("/api/v1/rules", &rules))
	evaluated := 0
	for _, g := range rules.Data.Groups {
		for _, r := range g.Rules {
			if r.Health != "unknown" { // not evaluated yet: once a minute
				require.Equal(t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
				evaluated++
			}
		}
	}
	require.GreaterOrEqual(t, evaluated, 12)
	for _, name := range []string{"GPUXid", "GPUGadgetsLosesExports"} {
		got, err := s.query(`ALERTS{alertname="` + name + `",alertstate="firing"}`)
		require.NoError(t, err)
		require.NotEmpty(t, got, "%s does not fire", name)
	}
	// Who was refused memory still runs.
	got, err := s.query(`ALERTS{alertname="GPUMemoryRefused",kind="tensor",process_pid="10"}`)
	require.NoError(t, err)
	require.Len(t, got, 1)
	got, err = s.query(`ALERTS{alertname="GPUOutOfMemory"}`)
	require.NoError(t, err)
	require.Empty(t, got)
}

// requireEnd checks what is shown after a process has ended.
func requireEnd(t *testing.T, s *server, world *world) {
	t.Helper()
	// An ended process is no longer in the graphs.
	world.end()
	require.Eventually(t, func() bool {
		got, err := s.query(`count(gpu_memory_inuse_bytes{process_pid="20"}) or count(mem_alloc_bytes_total{pid="20"})`)
		return err == nil && len(got) == 0
	}, 20*time.Second, 500*time.Millisecond, "series of an ended process go on")
	require.Eventually(t, func() bool {
		got, err := s.query(`ALERTS{alertname="GPUOutOfMemory",alertstate="firing",process_pid="20"}`)
		return err == nil && len(got) == 1
	}, 20*time.Second, 500*time.Millisecond, "its refusal, which a scrape saw with its end, does not alert")
	got, err := s.query(`count(gpu_memory_inuse_bytes{process_pid="10"})`)
	require.NoError(t, err)
	require.NotEmpty(t, got)

	// Its memory is freed in the difference between before and now.
	got, err = s.query(dashboards.Filled(panel(t, "Growth by process and kind"), map[string]string{"__range": "15s"}))
	require.NoError(t, err)
	changes := map[string]string{}
	for _, r := range got {
		if r.Metric["kind"] == "device" {
			changes[r.Metric["process_pid"]] = plain(r.Value[1])
		}
	}
	require.Regexp(t, `^-\d{9}$`, changes["20"])
	require.Regexp(t, `^[1-9]\d+$`, changes["10"])

	// Nothing is selected: nothing is shown.
	for _, name := range []string{"cluster", "namespace", "pod"} {
		got, err := s.query(dashboards.Filled(panel(t, "In use by kind"), map[string]string{name: "another"}))
		require.NoError(t, err)
		require.Empty(t, got, name)
	}
}

// panel is the first query of a panel.
func panel(t *testing.T, title string) string {
	t.Helper()
	for _, row := range dashboards.Rows() {
		for _, p := range row.Panels {
			if p.Title == title {
				return p.Queries[0].Expr
			}
		}
	}
	require.Fail(t, "no panel "+title)
	return ""
}

// plain is a sample's text without an exponent.
func plain(v any) string {
	var f float64
	if _, err := fmt.Sscan(fmt.Sprint(v), &f); err != nil {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%.0f", f)
}

func TestAlerts(t *testing.T) {
	promtool := filepath.Join(bin, "promtool")
	for _, arguments := range [][]string{{"check", "rules", "alerts.yaml", "alerts-full.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		path, err := filepath.Abs(promtool)
		require.NoError(t, err)
		command := exec.Command(path, arguments...)
		command.Dir = "../../../dashboards"
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	var rules []byte
	for _, name := range []string{"alerts.yaml", "alerts-full.yaml"} {
		text, err := os.ReadFile("../../../dashboards/" + name)
		require.NoError(t, err)
		rules = append(rules, text...)
	}
	tests, err := os.ReadFile("../../../dashboards/alerts_test.yaml")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		require.Regexp(t, `alertname: `+m[1]+`\n\s+exp_alerts`, string(tests), "%s is never seen to fire", m[1])
		require.Contains(t, string(tests), "alertname: "+m[1]+"}", "%s is never seen not to fire", m[1])
	}
}
