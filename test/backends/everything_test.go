// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/exact/compare"
)

// TestEverythingAtOnce: the inference example leaks in a pod, one ig-gpu sends all
// that it knows to a real Pyroscope, Prometheus and collector, and both dashboards
// have data in every panel. The GPU, the container runtime and the driver are made
// up; what is between them and the screen is not.
func TestEverythingAtOnce(t *testing.T) {
	pyro, c := startPyroscope(t), startCollector(t, collectorOptions{})
	w := startInContainer(t, "--devices", "1", "--leak", "--oom", "--seconds", "40", "--step-ms", "20", "--layers", "8", "--hold", "600")
	library, onDevice := gpuLibrary(t)
	onGPU(t, onDevice, []compare.Row{{PID: uint32(w.cmd.Process.Pid)}})
	t.Setenv("NVML_PROCESSES", onDevice)
	listen := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	g := trace(t, "cuda_alloc", w.cmd.Process.Pid, append(startRuntime(t, w.cmd.Process.Pid),
		"--pyroscope-url", pyro.URL, "--pyroscope-compat", "--otlp-endpoint", "http://"+c.GRPC, "--export-interval", "5s", "--cluster", "prod", "--node", "node-1",
		"--metrics-listen", listen, "--metrics-otlp-endpoint", "http://"+c.GRPC, "--metrics-interval", "2s", "--metrics-cluster", "prod", "--metrics-compat",
		"--metrics-nvml", library)...)
	prom := startPrometheus(t, listen)
	w.say(t, "go")
	for end := time.Now().Add(25 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		onGPU(t, onDevice, w.truth(t))
	}

	// While it runs, as somebody who looks at Grafana sees it.
	d := ours(t)
	queries := 0
	for _, picked := range [][2]string{{".*", ".*"}, {podNamespace, podName}} {
		queries += requireData(t, reference(), prom, pyro, picked[0], picked[1])
		queries += requireData(t, d.Panels, prom, pyro, picked[0], picked[1])
		for _, a := range d.Annotations.List {
			require.NotEmpty(t, prom.query(t, chosen(a.Expr, picked[0], picked[1])), a.Expr)
			queries++
		}
	}
	require.Greater(t, queries, 2*40)
	definitions := referenceVariables
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			definitions = append(definitions, v.Definition)
		}
	}
	for i, definition := range definitions {
		values := prom.values(t, chosen(definition, ".*", ".*"))
		require.NotEmpty(t, values, definition)
		switch i {
		case 0:
			require.Equal(t, []string{"prod"}, values)
		case 1:
			require.Equal(t, []string{podNamespace}, values)
		case 2:
			require.Equal(t, []string{podName}, values)
		}
	}
	t.Logf("%d queries have data, %d panels of ours", queries, len(d.Panels))

	// At the end, to the byte.
	w.summaries(t, 1)
	rows := w.truth(t)
	onGPU(t, onDevice, rows)
	time.Sleep(5 * time.Second) // the last reading is scraped
	requireNumbers(t, prom, rows)
	from := time.Now()
	g.end(t)
	want := compare.Total(rows)
	pyro.require(t, fmt.Sprintf(`{namespace=%q,pod=%q,container=%q,service_name=%q,node="node-1",cluster="prod"}`,
		podNamespace, podName, podContainer, podContainer), rows, pushed("alloc"), false)
	pyro.require(t, fmt.Sprintf(`{k8s_namespace=%q,k8s_podName=%q}`, podNamespace, podName), rows, pushed("malloc"), false)
	// The flame graph of one interval is what is in use.
	total, self := pyro.flameGraph(t, "cuda_inuse:inuse_space:bytes:space:bytes", fmt.Sprintf(`{pod=%q}`, podName), from, time.Now())
	require.Equal(t, want.InUseBytes, total)
	leaked := int64(0)
	for f, v := range wanted(rows, func(r compare.Row) int64 { return r.InUseBytes }) {
		if f.Function == "VisionEncoder._embed_patches" {
			leaked += v[0]
		}
	}
	require.Positive(t, leaked)
	t.Logf("in use: %d, leaked by VisionEncoder._embed_patches: %d; self in the flame graph: %v", total, leaked, self["VisionEncoder._embed_patches"])

	requireProfiles(t, c.profiles(t), rows)
	metrics := c.metrics(t)
	for at, want := range counted(rows) {
		require.Equal(t, want, metrics[at], "%+v", at)
	}
	count, _ := refused(t, w.dir)
	require.Positive(t, count)
	require.Len(t, c.logs(t), count)
}

// pushed are the columns of push.v1 with this type.
func pushed(kind string) (some []column) {
	for _, c := range columns(false) {
		if kind == "malloc" == (c.id == "process_cpu:malloc:bytes::") && !c.isLevel {
			some = append(some, c)
		}
	}
	return some
}

// requireNumbers compares what Prometheus has with the driver's journal.
func requireNumbers(t *testing.T, prom *prometheus, rows []compare.Row) {
	t.Helper()
	var device, all compare.Counts
	for _, r := range rows {
		one := compare.Total([]compare.Row{r})
		all = compare.Total([]compare.Row{{Counts: all}, {Counts: one}})
		if r.Kind != "host" {
			device = compare.Total([]compare.Row{{Counts: device}, {Counts: one}})
		}
	}
	const pod = `{k8s_namespace="ml",k8s_podname="llm-0",host_raw="0"}`
	for expr, want := range map[string]int64{
		"sum(mem_alloc_bytes_total" + pod + ")":                                                           device.AllocBytes,
		"sum(mem_free_bytes_total" + pod + ")":                                                            device.FreedBytes,
		"sum(mem_implicit_free_bytes_total" + pod + ")":                                                   0,
		`sum(gpu_memory_allocated_bytes_total{k8s_pod_name="llm-0",k8s_container_name="server"})`:         all.AllocBytes,
		`sum(gpu_memory_allocations_total)`:                                                               all.AllocObjects,
		`sum(gpu_memory_inuse_bytes{kind!="host",k8s_namespace_name="ml",k8s_cluster_name="prod"})`:       device.InUseBytes,
		`sum(gpu_memory_inuse_objects)`:                                                                   all.InUseObjects,
		`sum(gpu_process_memory_usage_bytes{k8s_pod_name="llm-0"})`:                                       device.InUseBytes + contextBytes,
		`sum(gpu_process_memory_parts_bytes{k8s_pod_name="llm-0"})`:                                       device.InUseBytes + contextBytes,
		`sum(gpu_process_memory_parts_bytes{k8s_pod_name="llm-0",part="stacks"})`:                         device.InUseBytes,
		`sum(gpu_gadgets_export_lost_total)`:                                                              0,
		`sum(gpu_xid_errors_total{xid="79",hw_id="GPU-00000000-0000-0000-0000-000000000001"})`:            1,
		`count(count by (process_pid) (gpu_memory_inuse_bytes{k8s_pod_name="llm-0",process_comm=~".+"}))`: 1,
	} {
		answer := prom.query(t, expr)
		require.Len(t, answer, 1, expr)
		require.Equal(t, strconv.FormatInt(want, 10), strconv.FormatFloat(answer[0].number(t), 'f', -1, 64), expr)
	}
}
