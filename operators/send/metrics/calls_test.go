// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

func called(p profile.Process, c Call, n, bytes, ns int64) Sample {
	return Sample{Series: Series{Process: p, Call: c}, Sums: Sums{Calls: n, CallBytes: bytes, CallNanoseconds: ns}}
}

// ran is kernels on the GPU.
func ran(p profile.Process, operation string, n, ns int64) Sample {
	return Sample{Series: Series{Process: p, Call: Call{Operation: operation}},
		Sums: Sums{Values: profile.Values{Kernels: n, DeviceNanoseconds: ns}}}
}

func onDevice(n int32, s Sample) Sample {
	s.Device = n
	return s
}

func TestScrapeHasTheCalls(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_kernel")
	p := serve(t, settings{listen: "127.0.0.1:0", compat: true}, &content{store: store})
	server := proc(1, 10)
	run.Calls([]Sample{
		called(server, Call{Operation: "launch"}, 100, 0, 1000), called(server, Call{Operation: "launch"}, 20, 0, 200), // of two stacks
		called(server, Call{Operation: "launch", Error: "CUDA_ERROR_INVALID_VALUE"}, 3, 0, 5),
		called(server, Call{Operation: "graph"}, 4, 0, 9),
		called(server, Call{Operation: "copy", Direction: "HtoD"}, 5, 4096, 50), called(server, Call{Operation: "copy", Direction: "DtoH"}, 6, 512, 60),
		called(server, Call{Operation: "copy", Direction: "DtoH", Waits: true}, 1, 100, 500_000_000),
		called(server, Call{Operation: "copy", Direction: "DtoH", Waits: true, Error: "CUDA_ERROR_INVALID_VALUE"}, 1, 100, 500_000_000),
		called(server, Call{Operation: "copy", Direction: "DtoH", Error: "CUDA_ERROR_INVALID_VALUE"}, 1, 1<<40, 60),
		called(server, Call{Operation: "set"}, 7, 1<<20, 70),
		called(server, Call{Operation: "wait"}, 8, 0, 2_500_000_000), onDevice(1, called(server, Call{Operation: "wait"}, 2, 0, 1_000_000_000)),
		ran(server, "kernel", 40, 1_500_000_000), ran(server, "unseen", 2, 500_000_000), onDevice(1, ran(server, "kernel", 1, 1_000_000)),
	}, over())
	got := scrape(t, p.addr)
	const on = `device="0",`
	const of = `hw_vendor="NVIDIA",k8s_container_name="server",k8s_namespace_name="ml",k8s_pod_name="llm-0",`
	const who = `process_comm="python3",process_pid="10"}`
	require.Equal(t, map[string]float64{
		`{` + on + `error_type="",` + of + `operation="launch",` + who:                         120,
		`{` + on + `error_type="CUDA_ERROR_INVALID_VALUE",` + of + `operation="launch",` + who: 3,
		`{` + on + `error_type="",` + of + `operation="graph",` + who:                          4,
		`{` + on + `error_type="",` + of + `operation="copy",` + who:                           12,
		`{` + on + `error_type="CUDA_ERROR_INVALID_VALUE",` + of + `operation="copy",` + who:   2,
		`{` + on + `error_type="",` + of + `operation="set",` + who:                            7,
		`{` + on + `error_type="",` + of + `operation="wait",` + who:                           8,
		`{device="1",error_type="",` + of + `operation="wait",` + who:                          2,
	}, having(got, "gpu_calls_total"))
	require.Equal(t, map[string]float64{`{` + on + of + `operation="launch",` + who: 120, `{` + on + of + `operation="graph",` + who: 4}, having(got, "gpu_launches_total"))
	require.Equal(t, map[string]float64{`{` + on + `direction="HtoD",` + of + who: 4096, `{` + on + `direction="DtoH",` + of + who: 612}, having(got, "gpu_copied_bytes_total"))
	require.Equal(t, map[string]float64{`{` + on + of + who: 3, `{device="1",` + of + who: 1}, having(got, "gpu_waits_time_seconds_total"))
	require.Equal(t, map[string]float64{`{` + on + of + who: 42, `{device="1",` + of + who: 1}, having(got, "gpu_kernels_total"))
	require.Equal(t, map[string]float64{`{` + on + of + who: 2, `{device="1",` + of + who: 0.001}, having(got, "gpu_kernels_time_seconds_total"))
	require.Empty(t, having(got, "gpu_memory_"), "calls are no memory")
	require.Empty(t, having(got, "mem_"))

	run.Calls(nil, over(1))
	require.NotEmpty(t, having(scrape(t, p.addr), "gpu_calls_total"), "once more, with the last values")
	require.Empty(t, having(scrape(t, p.addr), "gpu_calls_total"))
}

func TestMemoryAndCallsOfAProcessAreOfTwoGadgets(t *testing.T) {
	store := &Store{}
	memory, kernels, again, reader := store.NewRun("cuda_alloc"), store.NewRun("cuda_kernel"), store.NewRun("cuda_kernel"), store.NewReader()
	p := proc(1, 10)
	memory.Rows([]profile.Row{held(p, "device", 0, 100, 40)}, over())
	kernels.Calls([]Sample{called(p, Call{Operation: "launch"}, 5, 0, 1)}, over())
	again.Calls([]Sample{called(p, Call{Operation: "launch"}, 6, 0, 1)}, over())
	got := reader.Read()
	require.Len(t, got.Samples, 1)
	require.Len(t, got.Calls, 1, "the same from two gadgets counts once")
	require.EqualValues(t, 5, got.Calls[0].Calls)
	require.Equal(t, got.Samples, store.Current())
}

// A process may use the GPUs of two vendors: the series of one do not hide those of the other.
func TestSeriesHaveTheVendorOfTheGadget(t *testing.T) {
	store := &Store{}
	p, who := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store}), proc(1, 10)
	for gadget, bytes := range map[string]int64{"cuda_alloc": 100, "hip_alloc": 7, "nccl_trace": 3} {
		run := store.NewRun(gadget)
		run.Rows([]profile.Row{held(who, "device", 0, bytes, 0)}, over())
		run.Pools([]Pool{{Series: Series{Process: who}, AllocatedBytes: bytes}})
	}
	got := scrape(t, p.addr)
	for _, name := range []string{"gpu_memory_inuse_bytes", "gpu_pool_allocated_bytes"} {
		byVendor := map[string]float64{}
		for series, value := range having(got, name) {
			vendor := regexp.MustCompile(`hw_vendor="(\w*)"`).FindStringSubmatch(series)
			require.NotNil(t, vendor, series)
			byVendor[vendor[1]] += value
		}
		require.Equal(t, map[string]float64{"NVIDIA": 100, "AMD": 7, "": 3}, byVendor, name)
	}
}

// PyTorch for ROCm reports its blocks to the gadget for CUDA, too.
func TestTensorsAreOfTheGadgetThatHasTheDriversMemory(t *testing.T) {
	store := &Store{}
	p, who := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store}), proc(1, 10)
	other, own := store.NewRun("cuda_alloc"), store.NewRun("hip_alloc")
	tensors := held(who, profile.KindTensor, 0, 40, 0)
	other.Rows([]profile.Row{tensors}, over())
	own.Rows([]profile.Row{held(who, "device", 0, 64, 0), tensors}, over())
	for _, run := range []*Run{other, own} {
		run.Pools([]Pool{{Series: Series{Process: who}, AllocatedBytes: 40}})
	}
	got := scrape(t, p.addr)
	for name, want := range map[string]float64{"gpu_memory_inuse_bytes": 64, "gpu_tensor_inuse_bytes": 40, "gpu_pool_allocated_bytes": 40} {
		require.Len(t, having(got, name), 1, name)
		for series, value := range having(got, name) {
			require.Contains(t, series, `hw_vendor="AMD"`)
			require.Equal(t, want, value, name)
		}
	}
}

func TestEstimatesDoNotFall(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRun("cuda_kernel"), store.NewReader()
	launch := Call{Operation: "launch"}
	for _, n := range []struct{ read, reported int64 }{{100, 100}, {90, 100}, {110, 110}} {
		run.Calls([]Sample{called(proc(1, 10), launch, n.read, n.read, n.read)}, over())
		got := reader.Read().Calls
		require.Len(t, got, 1)
		require.Equal(t, Sums{Calls: n.reported, CallBytes: n.reported, CallNanoseconds: n.reported}, got[0].Sums)
	}
}
