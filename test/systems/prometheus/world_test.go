// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package prometheus

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
)

const mib = 1 << 20

// world is two processes on one simulated GPU, and the endpoint with their metrics.
type world struct {
	address string
	rows    *metrics.Run
	calls   *metrics.Run
	step    atomic.Int64
	ended   bool
	driver  int64
	ranks   *ranks.Store
	noRanks func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{driver: 3 << 30, ranks: &ranks.Store{}, noRanks: func() {}}
	store, queues := &metrics.Store{}, &exporters.Registry{}
	w.rows, w.calls = store.NewRun("cuda_alloc"), store.NewRun("cuda_kernel")
	queues.Add("pyroscope", func() exporters.Stats {
		n := w.step.Load()
		return exporters.Stats{Items: 2, Bytes: 1000, CapacityBytes: 1 << 20, Sent: n, Retries: n / 2, Lost: n / 3, LostBytes: n * 100}
	})
	source := nvml.NewSource(nvml.Config{
		Open:      func() (nvml.Library, error) { return &library{w}, nil },
		Rows:      store.Current,
		Processes: nvml.ProcFS("/nonexistent"),
		Info:      func(string) {},
	})
	at, stop, err := metrics.Serve("127.0.0.1:0", store,
		metrics.Options{Queues: queues, Sources: []metrics.Source{source, w.ranks}, Cluster: "prod", Compat: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	w.address = at.String()
	w.rows.Probes()
	w.rows.Attached(10, "/lib/libcuda.so.1", true)
	w.advance()
	return w
}

var (
	first  = profile.Process{ID: 1, PID: 10, Comm: "python3", Namespace: "ml", Pod: "llm-0", Container: "server"}
	second = profile.Process{ID: 2, PID: 20, Comm: "train", Namespace: "ml", Pod: "train-0", Container: "main"}
)

func (w *world) advance() {
	n := w.step.Add(1)
	row := func(p profile.Process, kind string, allocated, freed, implicit int64) profile.Row {
		return profile.Row{Process: p, Kind: kind, Values: profile.Values{
			AllocBytes: allocated, FreedBytes: freed, ImplicitBytes: implicit, InuseBytes: allocated - freed - implicit,
			AllocObjects: 3 * n, FreedObjects: n, ImplicitObjects: n, InuseObjects: n, PeakBytes: allocated - freed}}
	}
	idle := row(second, profile.KindContext, 0, 0, 0)
	idle.Device = 1
	tensor := row(first, profile.KindTensor, (400+n)*mib, n*mib/2, 0)
	tensor.RoundingBytes, tensor.FragmentedBytes = 3*mib, 40*mib
	w.rows.Rows([]profile.Row{idle,
		row(first, "device", (512+n)*mib, n*mib/4, n*mib/4), row(first, "pool", 64*mib, 0, 0), row(first, "host", 8*mib, 0, 0),
		row(second, "device", (256+n)*mib, n*mib/2, 0), tensor,
	}, func(p profile.Process) bool { return w.ended && p.ID == second.ID })
	w.rows.Buffers([]metrics.Buffers{{Series: metrics.Series{Process: first, Kind: "vmm"}, Communicator: "0xabc", Name: "gradients", Phase: "init", InuseBytes: 64 * mib}})
	w.rows.Pools([]metrics.Pool{{Series: metrics.Series{Process: first}, AllocatedBytes: 400*mib + n*mib/2, ReservedBytes: 512 * mib, OOMs: n / 2}})
	call := func(c metrics.Call, calls, bytes, ns int64) metrics.Sample {
		return metrics.Sample{Series: metrics.Series{Process: first, Call: c}, Sums: metrics.Sums{Calls: calls, CallBytes: bytes, CallNanoseconds: ns}}
	}
	w.calls.Calls([]metrics.Sample{
		call(metrics.Call{Operation: "launch"}, 20_000*n, 0, 80_000_000*n), call(metrics.Call{Operation: "graph"}, 10*n, 0, n),
		call(metrics.Call{Operation: "copy", Direction: "HtoD"}, n, 4096*n, n), call(metrics.Call{Operation: "wait"}, n, 0, 500_000_000*n),
		{Series: metrics.Series{Process: first, Call: metrics.Call{Operation: "kernel"}},
			Sums: metrics.Sums{Values: profile.Values{Kernels: 20_000 * n, DeviceNanoseconds: 1_000_000_000 * n}}},
	}, func(profile.Process) bool { return false })
	// Two ranks, one of which others wait for.
	now := collective.Time(time.Now().UnixNano())
	training := collective.Communicator{Hash: 1 << 40, Name: "training", Size: 2}
	rank := func(i int, p profile.Process) collective.Status {
		return collective.Status{Process: collective.Process{ID: p.ID, PID: p.PID, Comm: p.Comm, Namespace: p.Namespace, Pod: p.Pod, Container: p.Container}, Communicator: training, Rank: i,
			Issued: uint64(10*n) - uint64(i), IssuedAt: now, Done: uint64(10*n) - 1, DoneAt: now, Iteration: time.Second}
	}
	waited := collective.Verdict{Reason: collective.Missing, Communicator: training, Since: now - 40e9,
		Missing: []collective.Culprit{{Rank: 1, Process: rank(1, second).Process}}}
	w.noRanks()
	w.noRanks = w.ranks.Publish([]collective.Status{rank(0, first), rank(1, second)}, []collective.Verdict{waited}, now)
	w.rows.Failed(metrics.Series{Process: first, Kind: "device"}, 1<<30)
	w.rows.Failed(metrics.Series{Process: first, Kind: profile.KindTensor}, 1<<30)
	w.rows.Drop("freed_before_attach", n, 0)
	w.rows.Drop("rows_full", 0, 0)
}

// device returns the device memory of both processes now.
func (w *world) device() int64 {
	n := w.step.Load()
	return (512+n)*mib - 2*(n*mib/4) + 64*mib + (256+n)*mib - n*mib/2
}

func (w *world) run(t *testing.T, long time.Duration) {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) {
		w.advance()
	}
	time.Sleep(3 * time.Second) // the last step is scraped
}

// end ends the second process, within a second of a refusal.
func (w *world) end() {
	w.rows.Failed(metrics.Series{Process: second, Kind: "device"}, 1<<30)
	w.ended = true
	w.advance()
}

// library is a GPU with a value for every metric that there is, and one of another vendor, as far as
// sysfs has it.
type library struct{ w *world }

func (l *library) Close() {}

func (l *library) Processes() []nvml.ProcessMemory { return l.Read().Processes }

func (l *library) Read() nvml.Reading {
	gpu, other := nvml.Device{UUID: "GPU-0", Name: "made up"}, nvml.Device{UUID: "kfd-1", Name: "made up, too", Vendor: "AMD"}
	n := float64(l.w.step.Load())
	labels := map[string][]attribute.KeyValue{
		"hw.gpu.utilization":   {attribute.String("hw.gpu.task", "general")},
		"hw.temperature":       {attribute.String("hw.sensor_location", "gpu")},
		"hw.temperature.limit": {attribute.String("hw.limit_type", "high.degraded")},
		"gpu.clock":            {attribute.String("type", "sm")},
		"gpu.throttled":        {attribute.String("reason", "hw_thermal")},
		"hw.errors":            {attribute.String("error.type", "corrected")},
		"hw.gpu.io":            {attribute.String("network.io.direction", "transmit")},
		"gpu.nvlink.io":        {attribute.String("network.io.direction", "receive")},
		"gpu.xid_errors":       {attribute.String("xid", "79")},
		"gpu.processes":        {attribute.String("type", "compute")},
	}
	values := map[string]float64{
		"hw.gpu.memory.limit": 8 << 30, "hw.gpu.memory.usage": 3<<30 + n*mib, "hw.gpu.memory.utilization": 0.4, "gpu.processes": 2,
	}
	r := nvml.Reading{Processes: []nvml.ProcessMemory{{Device: gpu, PID: 10, Bytes: 2 << 30}, {Device: gpu, PID: 20, Bytes: 1 << 30}}}
	for _, m := range nvml.Metrics() {
		v, ok := values[m.Name]
		if !ok {
			v = n
		}
		r.Points = append(r.Points, nvml.Point{Metric: m.Name, Device: gpu, Value: v, Labels: labels[m.Name]})
		if strings.HasPrefix(m.Name, "hw.gpu.memory.") || m.Name == "hw.gpu.utilization" || m.Name == "gpu.processes" {
			r.Points = append(r.Points, nvml.Point{Metric: m.Name, Device: other, Value: v, Labels: labels[m.Name]})
		}
	}
	return r
}
