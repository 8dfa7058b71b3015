// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
)

// requireProfiles holds profiles against the rows: by function, file and line, to
// the byte.
func requireProfiles(t *testing.T, all map[string]*pprof.Profile, rows []compare.Row) {
	t.Helper()
	for _, c := range columns(true) {
		p := all[c.id]
		require.NotNil(t, p, "%s is not among %d profiles", c.id, len(all))
		want, total := wanted(rows, c.value), int64(0)
		requireSame(t, want, got(p, rows), c.id)
		for _, r := range rows {
			total += c.value(r)
		}
		require.Equal(t, total, sum(p), c.id)
		t.Logf("%s: %d functions, %d in all", c.id, len(want), total)
	}
}

// TestCollectorMatchesTheJournal: random calls of several processes, by both
// protocols, in the collector's files; and in the Pyroscope behind it.
func TestCollectorMatchesTheJournal(t *testing.T) {
	p := startPyroscope(t)
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			c := startCollector(t, collectorOptions{forward: p.URL})
			endpoint := map[string]string{"grpc": c.GRPC, "http": c.HTTP}[protocol]
			w := startWorkload(t)
			g := trace(t, "cuda_alloc", w.PID(), "--otlp-endpoint", "http://"+endpoint, "--otlp-protocol", protocol,
				"--cluster", "collector-"+protocol, "--export-interval", "1s", "--export-pid")
			w.Say("go")
			w.wait(t, "holding")
			time.Sleep(2 * time.Second) // windows without events add nothing
			rows := w.truth(t)
			g.end(t)
			all := c.profiles(t)
			requireProfiles(t, all, rows)
			for id, p := range all {
				for _, s := range p.Sample {
					require.Equal(t, []string{"python3"}, s.Label["service.name"], id)
					require.Equal(t, []string{"collector-" + protocol}, s.Label["k8s.cluster.name"], id)
					require.Regexp(t, `^(device|managed|host|array|vmm|pool)$`, s.Label["cuda.memory.kind"][0], id)
					require.NotEmpty(t, s.Label["process.pid"], id)
				}
			}
			// Levels would be added up: only flows can be read back over a range.
			p.require(t, fmt.Sprintf(`{k8s_cluster_name="collector-%s",service_name="python3"}`, protocol), rows, columns(true), false)
			w.Say("end")
			w.wait(t, "done")
		})
	}
}

// summaries are the example's report about its devices at its end.
type summary struct {
	PID, Device int
	OOMs        int
}

func (w *workload) summaries(t *testing.T, devices int) (all []summary) {
	t.Helper()
	for range devices {
		text := w.Line()
		var s summary
		require.NoError(t, json.Unmarshal([]byte(text), &s), text)
		require.Positive(t, s.PID, text)
		all = append(all, s)
	}
	return all
}

// counted are the metrics that follow from the rows.
func counted(rows []compare.Row) map[point]int64 {
	all := map[point]int64{}
	for _, r := range rows {
		for name, v := range map[string]int64{
			"gpu.memory.allocated": r.AllocBytes, "gpu.memory.allocations": r.AllocObjects,
			"gpu.memory.freed": r.FreedBytes, "gpu.memory.frees": r.FreedObjects,
			"gpu.memory.implicitly_freed": r.ImplicitBytes, "gpu.memory.implicit_frees": r.ImplicitObjects,
			"gpu.memory.inuse": r.InUseBytes, "gpu.memory.inuse_objects": r.InUseObjects,
		} {
			all[point{name, strconv.Itoa(int(r.PID)), r.Kind, strconv.Itoa(int(r.Device))}] += v
		}
	}
	return all
}

// refused are the allocations that the driver refused.
func refused(t *testing.T, dir string) (count int, byProcess map[uint32]uint64) {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	all, err := journal.Summarize(journals)
	require.NoError(t, err)
	byProcess = map[uint32]uint64{}
	for _, total := range all.Totals {
		byProcess[total.Process.PID] += total.OOMs
		count += int(total.OOMs)
	}
	return count, byProcess
}

// TestCollectorHasTheMetricsAndTheLogs of the inference example, with all three
// signals of one run in one collector.
func TestCollectorHasTheMetricsAndTheLogs(t *testing.T) {
	c := startCollector(t, collectorOptions{})
	w := startExample(t, "--devices", "2", "--leak", "--oom", "--seconds", "8", "--step-ms", "20", "--layers", "8", "--hold", "600")
	g := trace(t, "cuda_alloc", w.PID(), "--otlp-endpoint", "http://"+c.GRPC, "--export-interval", "1s", "--cluster", "east",
		"--metrics-otlp-endpoint", "http://"+c.GRPC, "--metrics-interval", "1s", "--metrics-cluster", "east", "--metrics-nvml", "off")
	w.Say("go")
	devices := w.summaries(t, 2)
	time.Sleep(2 * time.Second)
	rows := w.truth(t)
	count, byProcess := refused(t, w.dir)
	g.end(t)

	requireProfiles(t, c.profiles(t), rows)

	metrics := c.metrics(t)
	for at, want := range counted(rows) {
		require.Contains(t, metrics, at)
		require.Equal(t, want, metrics[at], "%+v", at)
	}
	for pid, n := range byProcess {
		failures := int64(0)
		for at, v := range metrics {
			if at.metric == "gpu.memory.failures" && at.process == strconv.Itoa(int(pid)) {
				failures += v
			}
		}
		require.EqualValues(t, n, failures, "gpu.memory.failures of %d", pid)
	}

	require.Equal(t, devices[0].OOMs+devices[1].OOMs, count)
	require.Positive(t, count)
	logs := c.logs(t)
	require.Len(t, logs, count)
	for _, l := range logs {
		require.Equal(t, "cuda.out_of_memory", l.EventName)
		require.Equal(t, "ERROR", l.SeverityText)
		require.Positive(t, l.TimeUnixNano)
		require.Equal(t, "python3", attribute(l.ResourceLabels, "service.name").StringValue)
		require.Equal(t, "east", attribute(l.ResourceLabels, "k8s.cluster.name").StringValue)
		require.Regexp(t, regexp.MustCompile(`^python3\[\d+\] cuMem\w+ of .* held .*B$`), l.Body.StringValue)
		require.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", attribute(l.Attributes, "error.type").StringValue)
		require.NotZero(t, attribute(l.Attributes, "code.line.number").IntValue)
		require.Contains(t, attribute(l.Attributes, "code.stacktrace").StringValue, "execute_model")
		require.Greater(t, int64(attribute(l.Attributes, "cuda.memory.requested").IntValue), int64(16)<<30)
		holders := attribute(l.Attributes, "cuda.memory.holders").ArrayValue.Values
		require.NotEmpty(t, holders)
		require.Contains(t, attribute(holders[0].KvlistValue.Values, "stack").StringValue, "_allocate_kv_cache_tensors")
	}
	t.Logf("%d metric points, %d logs", len(metrics), len(logs))
}
