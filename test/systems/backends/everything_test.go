// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// TestEverythingAtOnce: the inference example leaks, one ig-gpu sends all its data to a real
// Pyroscope, Prometheus and collector, another traces the calls of a program that launches kernels,
// and both dashboards have data in every panel. The GPU and its driver are simulated; everything
// between them and the screen is real, except Grafana.
func TestEverythingAtOnce(t *testing.T) {
	pyro, c := startPyroscope(t), startCollector(t, collectorOptions{})
	w := startExample(t, "--devices", "1", "--leak", "--oom", "--seconds", "45", "--step-ms", "20", "--layers", "8", "--hold", "600")
	library, onDevice := gpuLibrary(t)
	onGPU(t, onDevice, []compare.Row{{PID: uint32(w.PID())}})
	t.Setenv("NVML_PROCESSES", onDevice)
	listen := loopback.FreeAddress(t)
	g := trace(t, "cuda_alloc", w.PID(),
		"--pyroscope-url", pyro.URL, "--pyroscope-compat", "--otlp-endpoint", "http://"+c.GRPC, "--cluster", "prod", "--node", "node-1",
		"--metrics-listen", listen, "--metrics-otlp-endpoint", "http://"+c.GRPC, "--metrics-interval", "2s", "--metrics-cluster", "prod", "--metrics-compat",
		"--metrics-nvml", library)
	decoding, listenCalls := startDecoding(t), loopback.FreeAddress(t)
	calls := trace(t, "cuda_kernel", decoding.PID(), "--pyroscope-url", pyro.URL, "--otlp-endpoint", "http://"+c.GRPC,
		"--cluster", "prod", "--node", "node-1", "--metrics-listen", listenCalls, "--metrics-cluster", "prod", "--metrics-nvml", "off", "--device-times")
	prom := startPrometheus(t, listen, listenCalls)
	w.Say("go")
	decoding.Say("go")
	for end := time.Now().Add(28 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		onGPU(t, onDevice, append(w.soFar(t), compare.Row{PID: uint32(w.PID())}))
	}

	// While it runs, as a user of Grafana sees it.
	d := ours(t, "Collectives of NCCL", "PyTorch's pools") // only the simulated data of test/systems/prometheus has these
	queries := requireData(t, reference(), prom, pyro) + requireData(t, d.Panels, prom, pyro)
	require.Greater(t, queries, 40)
	require.Eventually(t, func() bool { return len(prom.query(t, chosen(d.Annotations.List[0].Expr))) > 0 }, 10*time.Second, time.Second,
		"refused allocations are no annotations")
	require.Equal(t, []string{"prod"}, prom.values(t, "label_values(mem_alloc_bytes_total, cluster)"))
	t.Logf("%d queries of %d panels have data", queries, len(reference())+len(d.Panels))

	// At the end, to the byte.
	w.summaries(t, 1)
	decoding.wait(t, "ready")
	rows := w.truth(t)
	onGPU(t, onDevice, rows)
	time.Sleep(5 * time.Second) // the last reading is scraped
	requireNumbers(t, prom, rows)
	prom.require(t, map[string]int64{
		`sum(gpu_launches_total{operation="launch",k8s_cluster_name="prod"})`: 3 * decodeLayers * decodeSteps,
		`sum(gpu_copied_bytes_total{direction="HtoD"})`:                       8 * decodeBatch * decodeSteps,
		`sum(gpu_copied_bytes_total{direction="DtoH"})`:                       8 * decodeBatch * decodeSteps,
		`sum(gpu_calls_total{operation="wait",error_type=""})`:                decodeSteps,
		`sum(gpu_kernels_total{k8s_cluster_name="prod"})`:                     3 * decodeLayers * decodeSteps,
		`sum(gpu_calls_total{error_type!=""}) or vector(0)`:                   0,
	})
	calls.end(t)
	requireDecoding(t, pyro)
	from := time.Now().Add(-10 * time.Second)
	g.end(t)
	pyro.require(t, `{service_name="python3",node="node-1",cluster="prod"}`, rows, pushed("alloc"), false)
	pyro.require(t, `{k8s_namespace=~".*",k8s_podName=~".*"}`, rows, pushed("malloc"), false)
	requireFlameGraph(t, pyro, rows, from)

	requireProfiles(t, c.profiles(t), rows)
	metrics := c.metrics(t)
	for at, want := range counted(rows) {
		require.Equal(t, want, metrics[at], "%+v", at)
	}
	count, _ := refused(t, w.dir)
	require.Positive(t, count)
	require.Len(t, c.logs(t), count)
}

// requireDecoding checks the profile of the calls of the decoding example.
func requireDecoding(t *testing.T, pyro *pyroscope) {
	t.Helper()
	const steps, each = int64(decodeSteps), int64(3 * decodeLayers)
	const decoder = `{service_name="python3",node="node-1",cluster="prod"}`
	require.Equal(t, 2*8*decodeBatch*steps, sum(pyro.stored(t, "cuda_calls:copied:bytes:host:nanoseconds", decoder)))
	require.Positive(t, sum(pyro.stored(t, "cuda_calls:wait:nanoseconds:host:nanoseconds", decoder)))
	require.Equal(t, each*steps, sum(pyro.stored(t, "cuda_device:kernels:count:device:nanoseconds", decoder)))
	require.Positive(t, sum(pyro.stored(t, "cuda_device:device:nanoseconds:device:nanoseconds", decoder)))
	launched := map[string]int64{}
	for _, s := range pyro.stored(t, "cuda_calls:launches:count:host:nanoseconds", decoder).Sample {
		for _, l := range s.Location {
			launched[l.Line[0].Function.Name] += s.Value[0]
		}
	}
	for function, want := range map[string]int64{
		"Model.forward": each * steps, "rms_norm": each * steps / 3, "gemm_bf16": each * steps / 3, "flash_attention": each * steps / 3,
	} {
		require.Equal(t, want, launched[function], function)
	}
}

// requireFlameGraph checks the flame graph of the memory in use at the end of a run.
func requireFlameGraph(t *testing.T, pyro *pyroscope, rows []compare.Row, from time.Time) {
	t.Helper()
	want := compare.Total(rows)
	// The flame graph of one interval shows memory in use. The last window may be a short
	// one, so that the interval also contains the start of the previous one, which is
	// added.
	inuse, byName := pyro.flameGraph(t, "cuda_inuse:inuse_space:bytes:space:bytes", `{namespace=~".*",pod=~".*"}`, from, time.Now())
	require.Contains(t, []int64{want.InUseBytes, 2 * want.InUseBytes}, inuse)
	leaked := int64(0)
	for f, v := range wanted(rows, func(r compare.Row) int64 { return r.InUseBytes }) {
		if f.Function == "VisionEncoder._embed_patches" {
			leaked += v[1]
		}
	}
	require.Positive(t, leaked)
	require.Equal(t, leaked*(inuse/want.InUseBytes), byName["VisionEncoder._embed_patches"])
	t.Logf("in use: %d, of it leaked by VisionEncoder._embed_patches: %d", want.InUseBytes, leaked)
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

// requireNumbers compares Prometheus' values with the driver's journal.
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
	const pod = `{cluster="prod",host_raw="0"}`
	prom.require(t, map[string]int64{
		"sum(mem_alloc_bytes_total" + pod + ")":                                                device.AllocBytes,
		"sum(mem_free_bytes_total" + pod + ")":                                                 device.FreedBytes,
		"sum(mem_implicit_free_bytes_total" + pod + ")":                                        0,
		`sum(gpu_memory_allocated_bytes_total{k8s_cluster_name="prod"})`:                       all.AllocBytes,
		`sum(gpu_memory_allocations_total)`:                                                    all.AllocObjects,
		`sum(gpu_memory_inuse_bytes{kind!="host",k8s_cluster_name="prod"})`:                    device.InUseBytes,
		`sum(gpu_memory_inuse_objects)`:                                                        all.InUseObjects,
		`sum(gpu_process_memory_usage_bytes)`:                                                  device.InUseBytes + contextBytes,
		`sum(gpu_process_memory_parts_bytes)`:                                                  device.InUseBytes + contextBytes,
		`sum(gpu_process_memory_parts_bytes{part="stacks"})`:                                   device.InUseBytes,
		`sum(gpu_gadgets_export_lost_total)`:                                                   0,
		`sum(gpu_xid_errors_total{xid="79",hw_id="GPU-00000000-0000-0000-0000-000000000001"})`: 1,
		`count(count by (process_pid) (gpu_memory_inuse_bytes{process_comm="python3"}))`:       1,
	})
}

// require the answer to each expression to be one number, to the byte.
func (p *prometheus) require(t *testing.T, answers map[string]int64) {
	t.Helper()
	for expr, want := range answers {
		answer := p.query(t, expr)
		require.Len(t, answer, 1, expr)
		require.Equal(t, strconv.FormatInt(want, 10), strconv.FormatFloat(answer[0].number(t), 'f', -1, 64), expr)
	}
}
