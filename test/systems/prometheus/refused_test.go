// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package prometheus

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/dashboards"
)

// refusals are series of failures by process, a sample each minute. In the twelfth minute each is
// refused memory, by the driver, by PyTorch's pool or by both.
var refusals = []struct{ pod, driver, pool string }{
	{"freed-its-cache", "0x10 3x20", "0x30"},
	{"freed-its-cache-and-ended", "0x10 3 stale", "0x10 0 stale"},
	{"both", "0x10 3x20", "0x10 1x20"},
	{"own-limit", "0x30", "0x10 1x20"},
	{"died", "0x10 3 stale", "0x10 1 stale"},
	{"without-pool", "0x10 1x20", ""},
	{"well", "0x30", "0x30"},
}

// An annotation marks where a program ran out of memory, and the pools' panel shows that for pods
// that died of it.
func TestRefusedMemoryIsShown(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("rule_files: []\ntests:\n  - interval: 1m\n    input_series:\n")
	for i, r := range refusals {
		for name, values := range map[string]string{"gpu_memory_failures_total": r.driver, "gpu_tensor_failures_total": r.pool} {
			if values != "" {
				fmt.Fprintf(&text, "      - {series: '%s{k8s_cluster_name=\"prod\", instance=\"a\", hw_vendor=\"NVIDIA\", k8s_pod_name=%q, process_pid=\"%d\"}', values: '%s'}\n",
					name, r.pod, i, values)
			}
		}
	}
	text.WriteString("    promql_expr_test:\n")
	shown := func(expression string, at int, pods ...string) {
		fmt.Fprintf(&text, "      - expr: 'count by (k8s_pod_name) (%s)'\n        eval_time: %dm\n        exp_samples:\n",
			dashboards.Filled(expression, map[string]string{"__rate_interval": "4m"}), at)
		for _, pod := range pods {
			fmt.Fprintf(&text, "          - {labels: '{k8s_pod_name=%q}', value: 1}\n", pod)
		}
	}
	shown(dashboards.Refused, 10)
	shown(dashboards.Refused, 12, "both", "own-limit", "died", "without-pool")
	shown(dashboards.Refused, 25)
	refused := panel(t, "Refused by the pool") + " > 0"
	shown(refused, 10)
	shown(refused, 12, "both", "own-limit", "died")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "test.yaml"), []byte(text.String()), 0o600))

	out, err := exec.Command(filepath.Join(bin, "promtool"), "test", "rules", filepath.Join(dir, "test.yaml")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
