// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// scrape returns what Prometheus would see: series as Prometheus writes them → value.
func scrape(t *testing.T, addr net.Addr) map[string]float64 {
	t.Helper()
	response, err := http.Get("http://" + addr.String() + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(t, err)
	series := map[string]float64{}
	for name, family := range families {
		if strings.HasPrefix(name, "process_") {
			continue // our own cost
		}
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			key := name + "{" + strings.Join(labels, ",") + "}"
			require.NotContains(t, series, key, "twice")
			series[key] = value(m)
		}
	}
	return series
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.Untyped.GetValue()
}

func serve(t *testing.T, s settings, c *content) *publisher {
	t.Helper()
	if c.queues == nil {
		c.queues = &exporters.Registry{}
	}
	p, err := newPublisher(s, c, func(string) {})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.close(context.Background())) })
	return p
}

// having is the series that start with prefix, without it.
func having(series map[string]float64, prefix string) map[string]float64 {
	out := map[string]float64{}
	for k, v := range series {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			out[rest] = v
		}
	}
	return out
}

func TestScrapeHasTheRows(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	queues := &exporters.Registry{}
	queues.Add("pyroscope", func() exporters.Stats {
		return exporters.Stats{Items: 1, Bytes: 2, CapacityBytes: 3, Sent: 4, Retries: 5, Lost: 6, LostBytes: 7}
	})
	p := serve(t, settings{listen: "127.0.0.1:0", cluster: "prod"}, &content{store: store, queues: queues})
	run.Rows([]profile.Row{held(proc(1, 10), "device", 0, 100, 40)}, over())
	run.Failed(Series{Process: proc(1, 10), Kind: "device"}, 1<<30)
	run.Drop("rows_full", 3, 64)
	run.Probes()
	run.Attached(10, "/lib/libcuda.so.1", true)

	got := scrape(t, p.addr)
	labels := `{device="0",hw_vendor="NVIDIA",k8s_cluster_name="prod",k8s_container_name="server",k8s_namespace_name="ml",k8s_pod_name="llm-0",kind="device",process_comm="python3",process_pid="10"}`
	want := map[string]float64{
		"gpu_memory_allocated_bytes_total" + labels:        100,
		"gpu_memory_allocations_total" + labels:            2,
		"gpu_memory_freed_bytes_total" + labels:            40,
		"gpu_memory_frees_total" + labels:                  1,
		"gpu_memory_implicitly_freed_bytes_total" + labels: 0,
		"gpu_memory_implicit_frees_total" + labels:         0,
		"gpu_memory_failed_bytes_total" + labels:           1 << 30,
		"gpu_memory_failures_total" + labels:               1,
		"gpu_memory_inuse_bytes" + labels:                  60,
		"gpu_memory_inuse_objects" + labels:                1,
		"gpu_memory_peak_bytes" + labels:                   100,

		`gpu_gadgets_drops_total{gadget="cuda_alloc",k8s_cluster_name="prod",reason="rows_full"}`:         3,
		`gpu_gadgets_dropped_bytes_total{gadget="cuda_alloc",k8s_cluster_name="prod",reason="rows_full"}`: 64,
		`gpu_gadgets_forgotten_processes_total{k8s_cluster_name="prod"}`:                                  0,
		`gpu_gadgets_attached_processes{gadget="cuda_alloc",k8s_cluster_name="prod"}`:                     1,
		`gpu_gadgets_rows{gadget="cuda_alloc",k8s_cluster_name="prod"}`:                                   1,
		`gpu_gadgets_export_queue{exporter="pyroscope",k8s_cluster_name="prod"}`:                          1,
		`gpu_gadgets_export_queue_size_bytes{exporter="pyroscope",k8s_cluster_name="prod"}`:               2,
		`gpu_gadgets_export_queue_capacity_bytes{exporter="pyroscope",k8s_cluster_name="prod"}`:           3,
		`gpu_gadgets_export_sent_total{exporter="pyroscope",k8s_cluster_name="prod"}`:                     4,
		`gpu_gadgets_export_retries_total{exporter="pyroscope",k8s_cluster_name="prod"}`:                  5,
		`gpu_gadgets_export_lost_total{exporter="pyroscope",k8s_cluster_name="prod"}`:                     6,
		`gpu_gadgets_export_lost_size_bytes_total{exporter="pyroscope",k8s_cluster_name="prod"}`:          7,
	}
	require.Equal(t, want, got)

	docs, err := os.ReadFile("../../../docs/reference/metrics.md")
	require.NoError(t, err)
	for series := range got {
		name, _, _ := strings.Cut(series, "{")
		require.Contains(t, string(docs), "`"+name+"`")
	}
}

func TestSeriesOfAnEndedProcessEndAfterOneMoreScrape(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0", compat: true}, &content{store: store})
	rows := []profile.Row{held(proc(1, 10), "device", 0, 100, 40)}
	run.Rows(rows, over())
	require.Len(t, having(scrape(t, p.addr), "gpu_memory_"), 11)
	run.Rows(rows, over(1))
	last := scrape(t, p.addr)
	for name, want := range map[string]float64{"gpu_memory_implicitly_freed_bytes_total": 60, "gpu_memory_inuse_bytes": 0, "mem_implicit_free_bytes_total": 60} {
		for _, v := range having(last, name) {
			require.Equal(t, want, v, name)
		}
		require.Len(t, having(last, name), 1, name)
	}
	gone := scrape(t, p.addr)
	require.Empty(t, having(gone, "gpu_memory_"))
	require.Empty(t, having(gone, "mem_"))
	require.NotEmpty(t, gone)
}

func TestReferenceCountersHaveTheSameLabelsFromTheFirstScrape(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0", compat: true, cluster: "prod"}, &content{store: store})
	other := proc(2, 20)
	run.Rows([]profile.Row{
		{Process: proc(1, 10), Kind: "device", Values: profile.Values{AllocBytes: 100, AllocObjects: 1, InuseBytes: 100, InuseObjects: 1}},
		held(proc(1, 10), "pool", 1, 7, 2),
		held(other, kindHost, 0, 50, 1),
	}, over())
	got := scrape(t, p.addr)
	// The scrape has the cluster as a constant label as well; the dashboard ignores
	// it.
	label := func(pid, host string) string {
		return `{cluster="prod",host_raw="` + host + `",k8s_cluster_name="prod",k8s_namespace="ml",k8s_podname="llm-0",pid="` + pid + `"}`
	}
	require.Equal(t, map[string]float64{label("10", "0"): 107, label("20", "0"): 0, label("20", "1"): 50}, having(got, "mem_alloc_bytes_total"))
	require.Equal(t, map[string]float64{label("10", "0"): 2, label("20", "0"): 0, label("20", "1"): 1}, having(got, "mem_free_bytes_total"))
	require.Equal(t, map[string]float64{label("10", "0"): 0, label("20", "0"): 0, label("20", "1"): 0}, having(got, "mem_implicit_free_bytes_total"))
}

func TestProcessWithAUsedPidTakesTheSeriesOver(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0", compat: true}, &content{store: store})
	old, young := held(proc(1, 10), "device", 0, 100, 0), held(proc(2, 10), "device", 0, 5, 0)
	run.Rows([]profile.Row{old}, over())
	scrape(t, p.addr)
	run.Rows([]profile.Row{old, young}, over(1))
	for range 2 {
		got := scrape(t, p.addr)
		for _, name := range []string{"gpu_memory_allocated_bytes_total", "mem_alloc_bytes_total"} {
			require.Len(t, having(got, name), 1)
			for _, v := range having(got, name) {
				require.Equal(t, float64(5), v, "the old one's bytes would make the counter fall later")
			}
		}
	}
}

func TestInvalidUTF8NamesDoNotBreakTheScrape(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0", compat: true}, &content{store: store})
	bad := proc(1, 10)
	bad.Comm, bad.Pod = "a\xff\n\"}", "\xfe"
	run.Rows([]profile.Row{held(bad, "dev\xffice", 0, 100, 0)}, over())
	require.Len(t, having(scrape(t, p.addr), "gpu_memory_inuse_bytes"), 1)
}

// receiver is an OTLP server that keeps the last value of every series.
type receiver struct {
	colmetrics.UnimplementedMetricsServiceServer
	mu     sync.Mutex
	pushes int
	last   map[string]int64
	about  map[string]string
}

func (r *receiver) Export(_ context.Context, request *colmetrics.ExportMetricsServiceRequest) (*colmetrics.ExportMetricsServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pushes++
	r.last, r.about = map[string]int64{}, map[string]string{}
	for _, resource := range request.ResourceMetrics {
		for _, a := range resource.Resource.Attributes {
			r.about[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				points := m.GetGauge().GetDataPoints()
				if s := m.GetSum(); s != nil {
					points = s.DataPoints
				}
				for _, point := range points {
					var labels []string
					for _, a := range point.Attributes {
						labels = append(labels, a.Key+"="+a.Value.String())
					}
					r.last[m.Name+" "+m.Unit+" "+strings.Join(labels, ",")] += point.GetAsInt()
				}
			}
		}
	}
	return &colmetrics.ExportMetricsServiceResponse{}, nil
}

func (r *receiver) sum(name string) (sum int64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, v := range r.last {
		if strings.HasPrefix(k, name+" ") {
			sum += v
			n++
		}
	}
	return sum, n
}

func TestPushHasTheRowsAndEndsSeries(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, to := grpc.NewServer(), &receiver{}
	colmetrics.RegisterMetricsServiceServer(server, to)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	store := &Store{}
	run := store.NewRun("cuda_alloc")
	endpoint, err := url.Parse("http://" + listener.Addr().String())
	require.NoError(t, err)
	// Scrape and push at once: each reads ended processes one last time.
	p := serve(t, settings{listen: "127.0.0.1:0", endpoint: endpoint, interval: time.Hour, timeout: time.Minute, cluster: "prod"}, &content{store: store})
	rows := []profile.Row{held(proc(1, 10), "device", 0, 100, 40), held(proc(2, 20), "pool", 1, 9, 0)}
	run.Rows(rows, over())
	require.NoError(t, p.flush(t.Context()))
	sum, n := to.sum("gpu.memory.allocated")
	require.Equal(t, [2]int64{109, 2}, [2]int64{sum, int64(n)})
	sum, _ = to.sum("gpu.memory.inuse")
	require.Equal(t, int64(69), sum)
	require.Equal(t, "gpu-gadgets", to.about["service.name"])
	require.Equal(t, "prod", to.about["k8s.cluster.name"])
	require.NotEmpty(t, to.about["service.instance.id"])

	run.Rows(rows, over(2))
	require.Len(t, having(scrape(t, p.addr), "gpu_memory_inuse_bytes"), 2)
	require.Len(t, having(scrape(t, p.addr), "gpu_memory_inuse_bytes"), 1)
	require.NoError(t, p.flush(t.Context()))
	sum, n = to.sum("gpu.memory.implicitly_freed")
	require.Equal(t, [2]int64{9, 2}, [2]int64{sum, int64(n)})
	require.NoError(t, p.flush(t.Context()))
	_, n = to.sum("gpu.memory.implicitly_freed")
	require.Equal(t, 1, n)
	sent, _ := to.sum("gpu_gadgets.export.sent")
	require.Equal(t, int64(2), sent)

	run.Rows(append(rows[:1:1], held(proc(3, 30), "device", 0, 1000, 0)), over(2))
	require.NoError(t, p.close(t.Context()))
	sum, _ = to.sum("gpu.memory.allocated")
	require.Equal(t, int64(1100), sum, "the end of the run is pushed")
}

func TestFailedPushesAreCountedAndReportedOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	require.NoError(t, listener.Close()) // no one answers
	queues := &exporters.Registry{}
	var warnings []string
	p, err := newPublisher(settings{endpoint: endpoint, interval: time.Hour, timeout: 50 * time.Millisecond}, &content{store: &Store{}, queues: queues},
		func(s string) { warnings = append(warnings, s) })
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, p.flush(t.Context()), "the SDK would print what is returned, each time")
	}
	require.Equal(t, []exporters.Named{{Name: "otlp-metrics", Stats: exporters.Stats{Lost: 3}}}, queues.Read())
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], endpoint.Host)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = p.close(ctx)
	require.GreaterOrEqual(t, queues.Read()[0].Lost, int64(3), "the next one counts on")
}

func TestReceiverThatHangsDoesNotHoldTheEnd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer listener.Close()
	p, err := newPublisher(settings{endpoint: &url.URL{Scheme: "http", Host: listener.Addr().String()}, interval: time.Hour, timeout: time.Minute},
		&content{store: &Store{}, queues: &exporters.Registry{}}, func(string) {})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = p.close(ctx)
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestTakenPortIsAnError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, err = newPublisher(settings{listen: listener.Addr().String()}, &content{store: &Store{}, queues: &exporters.Registry{}}, nil)
	require.ErrorContains(t, err, "--metrics-listen: ")
	require.ErrorContains(t, err, "address already in use")
}

func TestInvalidParameters(t *testing.T) {
	for key, bad := range map[string]string{
		paramListen: "9464", paramEndpoint: "127.0.0.1:4317", paramInterval: "1ms", paramCompat: "maybe",
	} {
		_, err := parse(func(k string) string { return map[string]string{key: bad}[k] })
		require.ErrorContains(t, err, "--"+key, bad)
		require.ErrorContains(t, err, bad)
	}
	_, err := parse(func(k string) string { return map[string]string{paramCompat: "true"}[k] })
	require.ErrorContains(t, err, "needs --metrics-listen")
	s, err := parse(func(k string) string {
		return map[string]string{paramListen: ":9464", paramEndpoint: "https://c:4317", paramInterval: "30s", paramCompat: "true", paramCluster: "x"}[k]
	})
	require.NoError(t, err)
	require.Equal(t, settings{listen: ":9464", endpoint: &url.URL{Scheme: "https", Host: "c:4317"}, interval: 30 * time.Second, timeout: exportTimeout, cluster: "x", compat: true}, s)
}
