// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write gpu-gadgets.json")

const file = "gpu-gadgets.json"

func TestFileIsWhatThePanelsSay(t *testing.T) {
	want, err := JSON()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "panels.go has changed: go test ./dashboards -update")
	require.True(t, json.Valid(got))
}

func TestPanelsFollowTheRules(t *testing.T) {
	titles := map[string]bool{}
	rate := regexp.MustCompile(`\b(rate|increase)\(`)
	for _, row := range Rows() {
		for _, p := range row.Panels {
			require.False(t, titles[p.Title], "two panels %q", p.Title)
			titles[p.Title] = true
			require.NotEmpty(t, p.Queries, p.Title)
			require.Contains(t, []int{8, 12}, p.Width, p.Title)
			if p.Kind == FlameGraph {
				require.Regexp(t, `^\w+:\w+:\w+:\w+:\w+$`, p.Queries[0].Expr)
				require.Equal(t, strings.Contains(p.Queries[0].Expr, "inuse_space"), p.LastInterval, p.Title)
				continue
			}
			require.NotEmpty(t, p.Unit, p.Title)
			for _, q := range p.Queries {
				if rate.MatchString(q.Expr) {
					require.Regexp(t, `\[\$__(rate_interval|range)\]`, q.Expr, p.Title)
				}
				if p.Kind == TimeSeries {
					require.NotEmpty(t, q.Legend, p.Title)
				}
				require.Equal(t, strings.Count(q.Expr, "("), strings.Count(q.Expr, ")"), p.Title)
			}
		}
	}
}

// Series of GPUs have the label hw_vendor: those that docs/reference/metrics.md lists below "GPUs", and
// the driver's count of a process on one device.
func TestEveryQueryOfGPUsAsksForTheVendor(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/metrics.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "\n## GPUs, ")
	require.True(t, ok)
	section, _, ok = strings.Cut(section, "\n### ")
	require.True(t, ok)
	ofGPU := map[string]bool{"gpu_process_memory_usage_bytes": true}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			ofGPU[name[1]] = true
		}
	}
	grouping := regexp.MustCompile(`\b(by|on) \([^)]*\)`)
	metric := regexp.MustCompile(`\b((?:hw|gpu)_\w+)(\{[^}]*\})?`)
	n := 0
	for _, row := range Rows() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				for _, m := range metric.FindAllStringSubmatch(grouping.ReplaceAllString(q.Expr, ""), -1) {
					require.Truef(t, ofGPU[m[1]] || !strings.HasPrefix(m[1], "hw_"), "%s: %s is not documented", p.Title, m[1])
					if ofGPU[m[1]] {
						require.Contains(t, m[2], `hw_vendor=~"$vendor"`, "%s: %s", p.Title, m[1])
						n++
					}
				}
			}
		}
	}
	require.Greater(t, n, 20)
}

// A panel that forgets the lists shows all pods whatever is chosen.
func TestEveryQueryAsksForWhatWasChosen(t *testing.T) {
	metric := regexp.MustCompile(`\b(hw|gpu|process)_\w+(\{[^}]*\})?`)
	grouping := regexp.MustCompile(`\b(by|on) \([^)]*\)`)
	n := 0
	for _, row := range Rows() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				if p.Kind == FlameGraph {
					continue
				}
				for _, m := range metric.FindAllStringSubmatch(grouping.ReplaceAllString(q.Expr, ""), -1) {
					// These are joined with a metric of ours.
					joined := strings.HasPrefix(m[0], "process_") || strings.Contains(q.Expr, m[0]+" and on (instance) ")
					require.True(t, joined || strings.Contains(m[2], `k8s_cluster_name=~"$cluster"`), "%s: %s", p.Title, m[0])
					n++
				}
			}
		}
	}
	require.Greater(t, n, 50)
	require.NotContains(t, Filled(Profiles()[0].Selector, nil), "$")
	require.Equal(t, `{a=~"x|y"}[5m]`, Filled(`{a=~"${pod:regex}"}[$__range]`, map[string]string{"pod": "x|y", "__range": "5m"}))
}

// The series of a pool end with its process, before the refusal that ended it is read. The failures of
// its tensors have one more scrape.
func TestRefusalsOfPoolsAreThoseOfTensors(t *testing.T) {
	raw, err := JSON()
	require.NoError(t, err)
	require.NotContains(t, string(raw), "gpu_pool_ooms")
	require.Contains(t, Refused, "gpu_tensor_failures_total{")
}

func TestEveryFlameGraphIsInTheList(t *testing.T) {
	var titles []string
	for _, p := range Profiles() {
		titles = append(titles, p.Title)
		require.Equal(t, p.Title == "In use" || p.Title == "Tensors in use", p.IsLevel)
	}
	require.Equal(t, []string{"Allocated", "In use", "Tensors allocated", "Tensors in use", "Launches", "Waits", "Time on the GPU"}, titles)
	raw, err := JSON()
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(raw, []byte(`"timeFrom": "10s"`)))
	require.Equal(t, 2, bytes.Count(raw, []byte(`"timeShift": "15s"`)))
}

func TestPanelsDoNotOverlap(t *testing.T) {
	raw, err := JSON()
	require.NoError(t, err)
	type panel struct {
		ID        int
		Title     string
		Collapsed bool
		GridPos   struct{ X, Y, W, H int }
		Panels    []panel
	}
	var d panel
	require.NoError(t, json.Unmarshal(raw, &d))
	ids, folded := map[int]bool{}, 0
	var look func([]panel)
	look = func(panels []panel) {
		taken := map[[2]int]string{}
		for _, p := range panels {
			require.False(t, ids[p.ID], p.ID)
			ids[p.ID] = true
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, columns)
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					require.Empty(t, taken[at], p.Title)
					taken[at] = p.Title
				}
			}
			// Grafana keeps the panels of a folded row in it, below its title.
			require.Equal(t, p.Collapsed, len(p.Panels) > 0, p.Title)
			for _, inside := range p.Panels {
				require.Greater(t, inside.GridPos.Y, p.GridPos.Y, inside.Title)
				folded++
			}
			look(p.Panels)
		}
	}
	look(d.Panels)
	require.Equal(t, 24, folded)
}

// Each alert has a section in a runbook, and each section is an alert's.
func TestEveryAlertHasARunbook(t *testing.T) {
	const base = "https://github.com/gpu-gadgets/gpu-gadgets/blob/main/"
	alert := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?(?:runbook_url: (\S+)\n|\n      - alert|$)`)
	heading := regexp.MustCompile(`(?m)^## (\w+)$`)
	sections := map[string]bool{}
	for _, page := range []string{"memory", "gpus", "nccl", "self"} {
		text, err := os.ReadFile("../docs/runbooks/" + page + ".md")
		require.NoError(t, err)
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			sections[base+"docs/runbooks/"+page+".md#"+strings.ToLower(m[1])] = true
		}
	}
	for _, name := range []string{"alerts.yaml", "alerts-full.yaml", "nccl.yaml"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		found := alert.FindAllStringSubmatch(string(text), -1)
		require.Len(t, found, strings.Count(string(text), "- alert: "), name)
		for _, m := range found {
			require.Contains(t, sections, m[2], "%s: %s", name, m[1])
			require.True(t, strings.HasSuffix(m[2], "#"+strings.ToLower(m[1])), "%s has the runbook %s", m[1], m[2])
			delete(sections, m[2])
		}
	}
	require.Empty(t, sections, "runbooks of alerts that do not exist")
}
