// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// group is exporters that share the nodes.
type group struct {
	exporters []*exporter
	receivers []*pyroscope
	metrics   []string
}

func startGroup(t *testing.T, server *simnodes.Server, shards int, args ...string) *group {
	t.Helper()
	g := &group{}
	for i := range shards {
		p, address := startPyroscope(t), loopback.FreeAddress(t)
		g.receivers, g.metrics = append(g.receivers, p), append(g.metrics, address)
		g.exporters = append(g.exporters, start(t, server.Addresses, append(args, "--shard", fmt.Sprintf("%d/%d", i, shards),
			"--pyroscope-url", p.url, "--export-interval", "2s", "--metrics-listen", address)...))
	}
	return g
}

// answers of all exporters together. No two have the same series, or profiles of the same node.
type answers struct {
	metrics map[string]float64
	nodes   map[string]bool
}

func (g *group) answers(t *testing.T) answers {
	t.Helper()
	a := answers{map[string]float64{}, map[string]bool{}}
	for i := range g.exporters {
		for s, v := range series(t, g.metrics[i], "gpu_memory_inuse_bytes", "nccl_verdict", "nccl_communicator_size", "nccl_rank_dead") {
			require.NotContains(t, a.metrics, s, "two shards have it")
			a.metrics[s] = v
		}
		for node := range g.receivers[i].allocated() {
			require.False(t, a.nodes[node], "two shards have profiles of %s", node)
			a.nodes[node] = true
		}
	}
	return a
}

// TestShardsGiveTheSameAnswers: two and four exporters, each of a part of the nodes, have the same
// verdicts, series and profiles together as one.
func TestShardsGiveTheSameAnswers(t *testing.T) {
	requireBuilt(t)
	const hang = 2 * time.Second
	nodes, counts := 14, []int{1, 4}
	if subject.Volume(0, 1) == 1 {
		nodes, counts = 48, []int{1, 2, 4}
	}
	f, err := simnodes.New(simnodes.Config{Seed: 2, Nodes: nodes, Jobs: 8, MaxRanks: 256, Fault: 4 * time.Second, FaultSpread: time.Second})
	require.NoError(t, err)
	server := serve(t, f)
	groups := map[int]*group{}
	for _, shards := range counts {
		groups[shards] = startGroup(t, server, shards, "--hang", hang.String())
	}
	waitForAll(t, f, groups[1].exporters[0], 7*time.Second+grace)
	// Rows of a node come a second apart, and each exporter reads them when it has connected.
	one := groups[1].answers(t)
	for deadline := time.Now().Add(grace); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		one = groups[1].answers(t)
		if len(one.nodes) == nodes && !slices.ContainsFunc(counts, func(n int) bool { return !reflect.DeepEqual(one, groups[n].answers(t)) }) {
			break
		}
	}
	require.Len(t, one.nodes, nodes)
	sizes := 0
	for s := range one.metrics {
		if strings.HasPrefix(s, "nccl_communicator_size{") {
			sizes++
		}
	}
	require.Equal(t, f.Ranks(), sizes, "a series for each rank of each communicator")
	for shards, g := range groups {
		got := g.answers(t)
		require.Empty(t, differences(one.metrics, got.metrics), "%d shards", shards)
		require.Equal(t, one.nodes, got.nodes, "%d shards", shards)
	}
	for shards, g := range groups {
		var all []found
		for i, e := range g.exporters {
			require.True(t, i == 0 || len(e.verdicts()) == 0, "only the first shard judges")
			all = append(all, e.verdicts()...)
		}
		requireTruth(t, f, all, hang)
		for i := range g.exporters {
			if shards == 4 {
				require.NotEmpty(t, g.receivers[i].allocated(), "shard %d has no node", i)
			}
			g.exporters[i].end()
		}
	}
}

// differences are the series that only one of the two has, or whose values differ.
func differences(a, b map[string]float64) (series []string) {
	for s, v := range a {
		if got, ok := b[s]; !ok || got != v {
			series = append(series, fmt.Sprint(s, " ", v, " ", got, " ", ok))
		}
	}
	for s := range b {
		if _, ok := a[s]; !ok {
			series = append(series, s)
		}
	}
	slices.Sort(series)
	return series[:min(len(series), 10)]
}
