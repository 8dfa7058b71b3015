// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/job"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// trace has a daemon follow some of the ranks, until both libraries of each have probes.
func (n *node) trace(pids ...uint32) {
	n.t.Helper()
	n.start()
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(pids), "[]"), " ", ",")
	require.NoError(n.t, n.create("nccl_trace", map[string]string{"operator.attach.pid": list, "operator.ranks.hang": "4s"}))
	n.waitAttached(int(pids[0]))
	ctx, cancel := context.WithTimeout(n.t.Context(), waitLimit)
	defer cancel()
	files := map[string]bool{}
	require.True(n.t, n.payloads(ctx, "attachments", func(ds datasource.DataSource, payload []byte) bool {
		d, err := ds.NewPacketSingleFromRaw(payload)
		require.NoError(n.t, err)
		pid, _ := ds.GetField("pid").Uint32(d)
		path, _ := ds.GetField("path").String(d)
		if status, _ := ds.GetField("status").String(d); status == "attached" {
			files[fmt.Sprint(pid, path)] = true
		}
		return len(files) < 2*len(pids)
	}), "not all libraries are attached to: %v", files)
}

// rank waits until the table of a daemon shows a rank as it should be.
func (n *node) rank(holds func(value func(field string) string, isLast bool) bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), waitLimit)
	defer cancel()
	found := false
	n.tables(ctx, "collectives", func(ds datasource.DataSource, rows datasource.PacketArray) bool {
		for i := range rows.Len() {
			d := rows.Get(i)
			isLast, err := ds.GetField("last").Bool(d)
			require.NoError(n.t, err)
			found = found || holds(func(name string) string {
				s, err := ds.GetField(name).String(d)
				require.NoError(n.t, err)
				return s
			}, isLast)
		}
		return !found
	})
	require.True(n.t, found, "the table does not show it")
}

// claim is a verdict without the parts that depend on time and observer.
var claim = regexp.MustCompile(`(rank \d+ of \d+ is stopped, before [A-Za-z]+ \d+ of communicator .* \(0x[0-9a-f]+\)) \(waited`)

// Ranks of one job on two nodes, each with a daemon: if one is stopped, its own node sees
// no rank wait for it, and the other node does not see which one is missing. The exporter
// reports the same as a run of ig-gpu that sees all of them.
func TestRanksOfTwoNodesAreOneJob(t *testing.T) {
	one, two := newNode(t), newNode(t)
	j := job.Start(t, fmt.Sprintf("job %d", os.Getpid()), "--story", "pipeline", "--stop", "broadcast")
	one.trace(j.PIDs[0], j.PIDs[2])
	two.trace(j.PIDs[1])
	local := start(t, program(t), "run", "nccl_trace", "--host", "--pid", strings.ReplaceAll(strings.Trim(fmt.Sprint(j.PIDs), "[]"), " ", ","),
		"--hang", "4s", "-o", "hangs:json,collectives:json,attachments:json,drops:none")
	eventually(t, "ig-gpu does not run", func() bool { return strings.Count(local.output(), `"status":"attached"`) >= len(j.PIDs) })
	j.Begin()

	// The daemon of the stopped rank reads its stack, although no rank there waits.
	two.rank(func(value func(string) string, isLast bool) bool {
		return value("state") == "stopped" && !isLast && strings.Contains(value("stack"), "Rank.stop_before (train.py:")
	})
	one.rank(func(value func(string) string, _ bool) bool { return value("verdict") == "elsewhere" })
	var verdict string
	eventually(t, "ig-gpu, which sees all ranks, says nothing", func() bool {
		verdict = claim.FindString(local.output())
		return verdict != ""
	})

	address, otlp := loopback.FreeAddress(t), startCollector(t)
	e := startExporter(t, "--address", "one=unix://"+one.socket+",two=unix://"+two.socket, "--hang", "4s",
		"--metrics-listen", address, "--otlp-endpoint", otlp.url)
	pattern := regexp.MustCompile(`found +dead +` + regexp.QuoteMeta(verdict) + ` .* by ranks 0, 2\); at Rank\.stop_before \(train\.py:\d+\), process ` +
		fmt.Sprint(j.PIDs[1]) + ` python3 on two`)
	eventually(t, "not the verdict of one who sees all ranks", func() bool { return pattern.MatchString(e.output()) })
	t.Log(pattern.FindString(e.output()))
	eventually(t, "no metric", func() bool {
		v, _ := loopback.Sum(t, address, "nccl_verdict", `reason="dead"`, `rank="1"`, `k8s_node_name="two"`)
		return v == 1
	})
	require.NotContains(t, e.output(), "elsewhere", "all ranks are seen")
	eventually(t, "no log", func() bool {
		_, logs := otlp.read(int(j.PIDs[1]))
		return len(logs) > 0 && strings.Contains(logs[0], "is stopped, before Broadcast 41") && strings.Contains(logs[0], "nccl.communicator.name")
	})

	require.NoError(t, unix.Kill(int(j.PIDs[1]), unix.SIGCONT))
	eventually(t, "it does not clear", func() bool { return strings.Contains(e.output(), "cleared dead") })
	eventually(t, "the metric does not end", func() bool {
		_, found := loopback.Sum(t, address, "nccl_verdict", `reason="dead"`)
		return !found
	})
	e.end()
	require.NotRegexp(t, `found +(missing|mismatch|unmatched|slow)`, e.output(), "and nobody else was blamed")
}
