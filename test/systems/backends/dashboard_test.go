// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/stretchr/testify/require"
)

// panel has Grafana's queries for one panel of a dashboard's JSON.
type panel struct {
	Title   string
	Targets []target
	// TimeFrom and TimeShift take the place of the range that the user chose.
	TimeFrom, TimeShift string
	Panels              []panel // of a folded row
}

// times are the time ranges that it shows at this moment.
func (p panel) times(t *testing.T) (from, to time.Time) {
	t.Helper()
	to = time.Now()
	if p.TimeFrom == "" {
		return to.Add(-time.Hour), to
	}
	long, err := time.ParseDuration(p.TimeFrom)
	require.NoError(t, err)
	shift, err := time.ParseDuration(p.TimeShift)
	require.NoError(t, err)
	to = to.Add(-shift)
	return to.Add(-long), to
}

type target struct {
	Expr, LegendFormat           string // of Prometheus
	ProfileTypeID, LabelSelector string // of Pyroscope
}

type dashboard struct {
	Panels      []panel
	Annotations struct{ List []struct{ Expr string } }
}

// ours is the dashboard that users import, without the panels of some folded rows.
func ours(t *testing.T, without ...string) (d dashboard) {
	t.Helper()
	content, err := os.ReadFile("../../../dashboards/gpu-gadgets.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &d))
	for _, p := range d.Panels {
		if !slices.Contains(without, p.Title) {
			d.Panels = append(d.Panels, p.Panels...)
		}
	}
	return d
}

// reference has the queries of the published AdvancedGPUObservability, by its
// contract: the file itself is not ours to keep. Panel by panel: title, query,
// labels of its legend.
func reference() []panel {
	const all = `cluster=~"$cluster",k8s_namespace=~"$namespace"`
	const pods = all + `,k8s_podname=~"$pod",host_raw="0"`
	const legend = "{{k8s_podname}} / pid {{pid}}"
	active := func(labels string) string {
		return fmt.Sprintf("mem_alloc_bytes_total{%[1]s} - mem_free_bytes_total{%[1]s} - mem_implicit_free_bytes_total{%[1]s}", labels)
	}
	show := func(title, expr, legend string) panel {
		return panel{Title: title, Targets: []target{{Expr: expr, LegendFormat: legend}}}
	}
	rate := func(metric string) string {
		return "sum by (k8s_podname, pid) (rate(" + metric + "{" + pods + "}[5m]))"
	}
	return []panel{
		show("GPU Active Memory by Pod", "sum by (k8s_podname, pid) ("+active(pods)+")", legend),
		show("Total GPU Memory", "sum("+active(all+`,host_raw="0"`)+")", ""),
		show("Top GPU Processes", "topk(5, sum by (k8s_podname, pid) ("+active(pods)+"))", legend),
		show("GPU Memory Allocation Rate", rate("mem_alloc_bytes_total"), legend),
		show("GPU Memory Free Rate", rate("mem_free_bytes_total"), legend),
		show("GPU Memory Implicit Free Rate", rate("mem_implicit_free_bytes_total"), legend),
		{Title: "GPU Memory Profiles", Targets: []target{{ProfileTypeID: "process_cpu:malloc:bytes::",
			LabelSelector: `{k8s_namespace=~"${namespace:regex}",k8s_podName=~"${pod:regex}"}`}}},
	}
}

// chosen fills in Grafana's variables with All. The times suit a test, not an hour.
func chosen(text string) string {
	return strings.NewReplacer("$__rate_interval", "10s", "$__range", "5s", "$cluster", "prod", "$instance", ".*",
		"${cluster:regex}", "prod", "${namespace:regex}", ".*", "${pod:regex}", ".*", "$namespace", ".*", "$pod", ".*").Replace(text)
}

type result struct {
	Metric map[string]string
	Value  [2]any
}

func (r result) number(t *testing.T) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
	require.NoError(t, err)
	return v
}

func (p *prometheus) get(t *testing.T, path string, to any) {
	t.Helper()
	response, err := http.Get("http://" + p.address + path)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, path)
	require.NoError(t, json.NewDecoder(response.Body).Decode(to))
}

func (p *prometheus) query(t *testing.T, expr string) []result {
	t.Helper()
	var answer struct{ Data struct{ Result []result } }
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &answer)
	return answer.Data.Result
}

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// values runs Grafana's label_values.
func (p *prometheus) values(t *testing.T, definition string) []string {
	t.Helper()
	m := labelValues.FindStringSubmatch(definition)
	require.NotNil(t, m, definition)
	var answer struct{ Data []string }
	p.get(t, "/api/v1/label/"+m[2]+"/values?match[]="+url.QueryEscape(m[1]), &answer)
	return answer.Data
}

// flameGraph returns the content of a panel of that kind: the total of each name.
func (p *pyroscope) flameGraph(t *testing.T, profileType, selector string, from, to time.Time) (all int64, byName map[string]int64) {
	t.Helper()
	nodes := int64(1 << 16)
	answer, err := p.SelectMergeStacktraces(t.Context(), connect.NewRequest(&querierv1.SelectMergeStacktracesRequest{
		ProfileTypeID: profileType, LabelSelector: selector, MaxNodes: &nodes, Start: from.UnixMilli(), End: to.UnixMilli(),
	}))
	require.NoError(t, err, "%s %s", profileType, selector)
	graph := answer.Msg.Flamegraph
	byName = map[string]int64{}
	// Each node is four numbers: offset, total, self, name.
	for _, level := range graph.GetLevels() {
		for i := 0; i+3 < len(level.Values); i += 4 {
			byName[graph.Names[level.Values[i+3]]] += level.Values[i+1]
		}
	}
	return graph.GetTotal(), byName
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// requireData fails for each empty panel, and for each empty name of a legend, except
// those of Kubernetes: the example is not in a pod (the rows of test/systems/prometheus
// are). It returns the number of queries.
func requireData(t *testing.T, panels []panel, prom *prometheus, pyro *pyroscope) (queries int) {
	t.Helper()
	for _, p := range panels {
		for _, target := range p.Targets {
			queries++
			if target.ProfileTypeID != "" {
				from, to := p.times(t)
				all, byName := pyro.flameGraph(t, target.ProfileTypeID, chosen(target.LabelSelector), from, to)
				if all == 0 || len(byName) < 3 {
					t.Errorf("%s: no flame graph: %s %s", p.Title, target.ProfileTypeID, target.LabelSelector)
				}
				continue
			}
			expr := chosen(target.Expr)
			answer := prom.query(t, expr)
			if len(answer) == 0 {
				t.Errorf("%s: no data\n%s", p.Title, expr)
				continue
			}
			for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if answer[0].Metric[m[1]] == "" && !strings.HasPrefix(m[1], "k8s_") {
					t.Errorf("%s: no label %s in %v\n%s", p.Title, m[1], answer[0].Metric, expr)
				}
			}
		}
	}
	return queries
}
