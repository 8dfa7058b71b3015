// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package prometheus

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestALostNodeIsOneAlert, however many communicators have ranks there, and an exporter that moves is no lost node: two
// communicators over two nodes, all scraped from one exporter, which is another pod from the fifth minute on. The
// second node is lost after ten.
func TestALostNodeIsOneAlert(t *testing.T) {
	rules, err := filepath.Abs("../../../dashboards/nccl.yaml")
	require.NoError(t, err)
	var text bytes.Buffer
	fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n", rules)
	series := func(name, labels, values string) {
		fmt.Fprintf(&text, "      - series: '%s{%s}'\n        values: '%s'\n", name, labels, values)
	}
	for _, communicator := range []string{"0x1", "0x2"} {
		for rank, node := range []string{"one", "two"} {
			for _, pod := range []string{"a", "b"} {
				labels := fmt.Sprintf(`instance="%s",k8s_node_name="%s",communicator="%s",rank="%d",process_pid="%s"`, pod, node, communicator, rank, communicator[2:])
				issued, done, constant := "1+1x19 stale", "1+1x19 stale", "%dx19 stale"
				if pod == "b" {
					issued, done, constant = "_x20 21+1x19 stale", "_x20 21+1x19 stale", "_x20 %dx19 stale"
				}
				waits := fmt.Sprintf(constant, 0)
				if pod == "b" && node == "one" {
					issued, done, constant, waits = "_x20 21+1x19 41x40", "_x20 21+1x19 40x40", "_x20 %dx59", "_x20 0x19 1x40"
				}
				series("nccl_rank_issued_total", labels, issued)
				series("nccl_rank_done_total", labels, done)
				series("nccl_rank_all_arrived_total", labels, done)
				series("nccl_rank_waits", labels, waits)
				for name, value := range map[string]int{"nccl_communicator_size": 2, "nccl_rank_first": 1, "nccl_rank_dead": 0, "nccl_rank_late": 0} {
					series(name, labels, fmt.Sprintf(constant, value))
				}
			}
		}
	}
	fmt.Fprint(&text, "    alert_rule_test:\n")
	for _, c := range []struct{ at, alert, expected string }{
		{"6m", "NCCLNodeLost", ""}, {"9m", "NCCLNodeLost", ""},
		{"14m", "NCCLNodeLost", `{exp_labels: {severity: critical, k8s_node_name: two}, exp_annotations: {
            runbook_url: "https://github.com/gpu-gadgets/gpu-gadgets/blob/main/docs/runbooks/nccl.md#ncclnodelost",
            summary: "node two is lost, and the ranks of other nodes wait for those on it",
            description: "It exported ranks of 2 communicators that hang, and exports none any more. Either the node is gone, or it is not scraped."}}`},
		{"14m", "NCCLElsewhere", ""}, {"14m", "NCCLSlow", ""},
	} {
		fmt.Fprintf(&text, "      - {eval_time: %s, alertname: %s, exp_alerts: [%s]}\n", c.at, c.alert, c.expected)
	}
	promtool(t, "a lost node", text.Bytes())
}
