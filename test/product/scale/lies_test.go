// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
)

// TestDaemonsThatLieAreCutOff, and counted, and the others' data stays as it is.
func TestDaemonsThatLieAreCutOff(t *testing.T) {
	requireBuilt(t)
	lies := map[int]simnodes.Lie{1: simnodes.OtherNode, 3: simnodes.Numbers, 9: simnodes.Clock, 7: simnodes.Flood}
	reasons := map[int]string{1: "other node", 3: "numbers", 9: "clock", 7: "flood"}
	f, err := simnodes.New(simnodes.Config{Seed: 4, Nodes: 10, Jobs: 12, MaxRanks: 64, Fault: time.Hour, Lies: lies})
	require.NoError(t, err)
	server, address := serve(t, f), loopback.FreeAddress(t)
	e := start(t, server.Addresses, "--metrics-listen", address, "--node-limit", "1MiB", "--rank-metrics=false", "--hang", "4s")
	var cuts map[string]float64
	for f.Now() < 20*time.Second && len(cuts) < len(lies) {
		time.Sleep(200 * time.Millisecond)
		if _, found := loopback.Sum(t, address, "gpu_exporter_nodes"); found {
			cuts = series(t, address, "gpu_exporter_cut_offs_total")
		}
	}
	require.Len(t, cuts, len(lies), "%v", cuts)
	for node, reason := range reasons {
		require.Contains(t, cuts, fmt.Sprintf(`gpu_exporter_cut_offs_total{k8s_node_name="node-%04d",reason=%q}`, node, reason))
	}
	time.Sleep(2 * time.Second)
	v, _ := loopback.Sum(t, address, "gpu_exporter_nodes", `state="cut off"`)
	require.EqualValues(t, len(lies), v)
	v, _ = loopback.Sum(t, address, "gpu_exporter_nodes", `state="connected"`)
	require.EqualValues(t, 10-len(lies), v)

	perNode := map[string]int{}
	for s, v := range series(t, address, "gpu_memory_inuse_bytes") {
		node := s[strings.Index(s, "node-"):][:len("node-0000")]
		perNode[node]++
		require.LessOrEqual(t, v, float64(f.Rate()), s)
	}
	for n := range 10 {
		name := fmt.Sprintf("node-%04d", n)
		if _, isLie := lies[n]; isLie {
			require.NotContains(t, perNode, name)
		} else {
			require.Equal(t, 16, perNode[name], "a series for each process of %s", name)
		}
	}
	require.Empty(t, series(t, address, "nccl_communicator_size", "nccl_rank_issued_total"), "the progress of ranks is not wanted")
	require.Empty(t, e.verdicts())
	u := e.taken()
	e.end()
	t.Logf("%v of processor time, %d MiB at most", u.cpu, u.resident)
}
