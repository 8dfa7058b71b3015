// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package prometheus

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks"
)

const (
	scenarios = 100
	atOnce    = 10
	scrape    = 5 * time.Second
)

// TestRulesGiveTheSameVerdictsForManyNodes: each node exports the progress of its own ranks, and
// in all simulated jobs the rules give the same verdicts as internal/collective with all ranks
// (TestVerdictIsRight of test/support/simranks), which are the truth.
func TestRulesGiveTheSameVerdictsForManyNodes(t *testing.T) {
	rules, err := filepath.Abs("../../../dashboards/nccl.yaml")
	require.NoError(t, err)
	for first := 0; first < scenarios; first += atOnce {
		var text bytes.Buffer
		fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n", rules)
		for seed := first; seed < first+atOnce; seed++ {
			writeScenario(t, &text, simranks.New(seed))
		}
		promtool(t, fmt.Sprintf("scenarios %d to %d", first, first+atOnce-1), text.Bytes())
	}
}

// TestALostNodeIsAnAlert, if all ranks of its communicator were exported before: where only some nodes are observed there is
// the verdict alone.
func TestALostNodeIsAnAlert(t *testing.T) {
	rules, err := filepath.Abs("../../../dashboards/nccl.yaml")
	require.NoError(t, err)
	var text bytes.Buffer
	fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n", rules)
	alerts := func(at time.Duration, samples string) {
		fmt.Fprintf(&text, "      - expr: 'count by (alertname, instance) (ALERTS{alertstate=\"firing\"})'\n        eval_time: %s\n        exp_samples: [%s]\n", at, samples)
	}
	for seed := range 6 {
		s := simranks.NodeLost(seed)
		if seed >= 4 {
			s = simranks.SplitNodeLost(seed, 4)
		}
		writeScenario(t, &text, s)
		alerts(time.Duration(s.End-s.Begin)-scrape, fmt.Sprintf(`{labels: '{alertname="NCCLNodeLost", instance="node%d"}', value: 1}`, s.LostNode))
		// The same from the moment on that the node is lost: nothing is known of it.
		s.Begin = s.Fault
		writeScenario(t, &text, s)
		alerts(time.Duration(s.End-s.Begin).Truncate(time.Second), "")
	}
	promtool(t, "lost nodes", text.Bytes())
}

// TestACallThatDiffersIsAMismatchAfterManyCalls, where the rank that differs is as far as others are: the first one reads the loss
// at each step, so that it is behind them.
func TestACallThatDiffersIsAMismatchAfterManyCalls(t *testing.T) {
	rules, err := filepath.Abs("../../../dashboards/nccl.yaml")
	require.NoError(t, err)
	var text bytes.Buffer
	fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n", rules)
	tried := 0
	for seed := range 14 {
		if s := simranks.FarMismatch(seed); s.Culprit != 0 {
			tried++
			writeScenario(t, &text, s)
		}
	}
	require.GreaterOrEqual(t, tried, 10)
	promtool(t, "mismatches", text.Bytes())
}

// TestRulesAreSilentForHealthyJobs of 30 minutes.
func TestRulesAreSilentForHealthyJobs(t *testing.T) {
	rules, err := filepath.Abs("../../../dashboards/nccl.yaml")
	require.NoError(t, err)
	var text bytes.Buffer
	fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n", rules)
	for seed, size := range []int{2, 5, 8, 16, 4, 8, 2} {
		writeScenario(t, &text, simranks.Healthy(seed, size, 30*time.Minute))
	}
	promtool(t, "healthy jobs", text.Bytes())
}

func promtool(t *testing.T, what string, text []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.Command(filepath.Join(bin, "promtool"), "test", "rules", file).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", what, err, out[:min(len(out), 8000)])
	}
}

// writeScenario adds a test group: the series, and the answers at the end.
func writeScenario(t *testing.T, text *bytes.Buffer, s *simranks.Scenario) {
	t.Helper()
	samples, err := simranks.Export(s, scrape)
	require.NoError(t, err)
	steps := 0
	bySeries := map[string]map[int]float64{}
	for _, sample := range samples {
		if bySeries[sample.Series] == nil {
			bySeries[sample.Series] = map[int]float64{}
		}
		bySeries[sample.Series][sample.Step] = sample.Value
		steps = max(steps, sample.Step+1)
	}
	names := make([]string, 0, len(bySeries))
	for name := range bySeries {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(text, "  - name: 'seed %d, %s, %d ranks, %s'\n    interval: %s\n    input_series:\n", s.Seed, s.Name, s.Size, s.Layout, scrape)
	for _, name := range names {
		fmt.Fprintf(text, "      - series: '%s'\n        values: '", name)
		was := false
		for i := range steps {
			value, ok := bySeries[name][i]
			switch {
			case ok:
				text.WriteString(strconv.FormatFloat(value, 'f', -1, 64) + " ")
			case was:
				text.WriteString("stale ")
			default:
				text.WriteString("_ ")
			}
			was = ok
		}
		text.WriteString("'\n")
	}
	at := time.Duration(steps-1) * scrape
	reasons, processes, communicators := s.Verdict()
	if s.Truth.Reason == "" {
		// It is silent all the time, and not only at the end.
		fmt.Fprintf(text, "    promql_expr_test:\n      - expr: count_over_time(nccl:verdict[1h])\n        eval_time: %s\n        exp_samples: []\n", at)
		return
	}
	fmt.Fprintf(text, "    promql_expr_test:\n")
	ask := func(by string, want []string) {
		if want == nil {
			return
		}
		fmt.Fprintf(text, "      - expr: 'group by (%s) (nccl:verdict)'\n        eval_time: %s\n        exp_samples:\n", by, at)
		for _, labels := range want {
			fmt.Fprintf(text, "          - {labels: '%s', value: 1}\n", labels)
		}
	}
	ask("reason", reasons)
	ask("instance, process_pid", processes)
	ask("communicator", communicators)
}

// TestWhatNoOtherRankNeeds: two jobs. In one, all ranks have arrived and wait, and after ten minutes the watchdog of one of them
// aborts: that is not the cause. In the other a rank has done more sends than were received: NCCL has buffered them, and
// the one that it waits for shows that its peer is missing.
func TestWhatNoOtherRankNeeds(t *testing.T) {
	rules, err := filepath.Abs("../../../dashboards/nccl.yaml")
	require.NoError(t, err)
	var text bytes.Buffer
	fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n  - interval: 5s\n    input_series:\n", rules)
	add := func(name, values string, labels ...string) {
		all := ""
		for n := 0; n < len(labels); n += 2 {
			all += fmt.Sprintf(`,%s="%s"`, labels[n], labels[n+1])
		}
		fmt.Fprintf(&text, "      - {series: '%s{%s}', values: '%s'}\n", name, all[1:], values)
	}
	for rank := range 2 {
		id := strconv.Itoa(rank)
		who := []string{"communicator", "slow", "rank", id, "instance", "a", "process_pid", id}
		with := func(more ...string) []string { return append(who[:len(who):len(who)], more...) }
		add("nccl_communicator_size", "2x240", who...)
		for name, value := range map[string]string{"issued_total": "5", "done_total": "4", "all_arrived_total": "4", "first": "1", "late": "0"} {
			add("nccl_rank_"+name, value+"x240", who...)
		}
		if add("nccl_rank_waits", "1x240", who...); rank == 0 {
			add("nccl_rank_dead", "0x240", who...)
			continue
		}
		add("nccl_rank_dead", "0x119 stale", who...)
		add("nccl_rank_dead", "_x120 1x120", with("state", "aborted")...)
	}
	for rank := range 2 {
		id := strconv.Itoa(rank)
		who := []string{"communicator", "sends", "rank", id, "instance", "b", "process_pid", id}
		for _, name := range []string{"issued_total", "done_total", "all_arrived_total", "first", "late", "waits", "dead"} {
			add("nccl_rank_"+name, "0x240", who...)
		}
		peer := func(direction, name, values string) {
			add("nccl_rank_peer_"+name, values, append(who[:len(who):len(who)], "direction", direction, "source", "0", "destination", "1")...)
		}
		if rank == 0 {
			peer("Send", "issued_total", "8x119 9x121")
			peer("Send", "done_total", "8x240")
			peer("Send", "waits", "0x119 1x121") // from then on, for the ninth
			continue
		}
		peer("Recv", "issued_total", "4x240")
		peer("Recv", "done_total", "4x240")
		peer("Recv", "waits", "0x240")
	}
	text.WriteString("    promql_expr_test:\n")
	for _, at := range []string{"9m", "15m"} {
		fmt.Fprintf(&text, "      - expr: 'group by (communicator, reason, rank) (nccl:verdict)'\n        eval_time: %s\n        exp_samples:\n"+
			"          - {labels: '{communicator=\"slow\",reason=\"slow\"}', value: 1}\n", at)
		if at == "15m" {
			text.WriteString("          - {labels: '{communicator=\"sends\",reason=\"unmatched\",rank=\"1\"}', value: 1}\n")
		}
	}
	promtool(t, "jobs that wait for nobody", text.Bytes())
}

// TestAGPUOfAProcessIsNamed: all four ranks are of one process, as with JAX, and the last one is missing in two communicators of
// two. That others of its process wait is no reason to leave it out.
func TestAGPUOfAProcessIsNamed(t *testing.T) {
	rules, err := filepath.Abs("../../../dashboards/nccl.yaml")
	require.NoError(t, err)
	var text bytes.Buffer
	fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n  - interval: 5s\n    input_series:\n", rules)
	for n, communicator := range []string{"row", "column"} {
		for rank, device := range []int{2 - n, 3} {
			values := map[string]int{"issued_total": 5 - rank, "done_total": 4, "all_arrived_total": 4, "first": 1, "late": 0, "waits": 1 - rank, "dead": 0}
			for name, value := range values {
				fmt.Fprintf(&text, "      - {series: 'nccl_rank_%s{communicator=\"%s\",rank=\"%d\",device=\"%d\",instance=\"a\",process_pid=\"7\"}', values: '%dx100'}\n",
					name, communicator, rank, device, value)
			}
			fmt.Fprintf(&text, "      - {series: 'nccl_communicator_size{communicator=\"%s\",rank=\"%d\"}', values: '2x100'}\n", communicator, rank)
		}
	}
	text.WriteString(`    promql_expr_test:
      - expr: 'group by (reason, process_pid, device) (nccl:verdict)'
        eval_time: 5m
        exp_samples:
          - {labels: '{reason="missing",process_pid="7",device="3"}', value: 1}
      - expr: 'group by (alertname) (ALERTS{alertstate="firing"})'
        eval_time: 5m
        exp_samples:
          - {labels: '{alertname="NCCLRankMissing"}', value: 1}
`)
	promtool(t, "a process with several GPUs", text.Bytes())
}
