// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Tensors are inside the driver's segments. Both have their own metrics, and the pool has
// those for the unused part of the segments.
func TestScrapeKeepsTensorsApart(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0", compat: true}, &content{store: store})
	server := proc(1, 10)
	run.Rows([]profile.Row{held(server, "device", 0, 100, 60), held(server, profile.KindTensor, 0, 90, 50)}, over())
	run.Pools([]Pool{{Series: Series{Process: server, Device: 0}, AllocatedBytes: 50, ReservedBytes: 64, OOMs: 2}})
	got := scrape(t, p.addr)
	const who = `k8s_container_name="server",k8s_namespace_name="ml",k8s_pod_name="llm-0"`
	const rest = `,process_comm="python3",process_pid="10"}`
	require.Equal(t, map[string]float64{`{device="0",hw_vendor="NVIDIA",` + who + `,kind="device"` + rest: 40}, having(got, "gpu_memory_inuse_bytes"))
	require.Equal(t, map[string]float64{`{device="0",hw_vendor="NVIDIA",` + who + `,kind="tensor"` + rest: 40}, having(got, "gpu_tensor_inuse_bytes"))
	require.Equal(t, map[string]float64{`{device="0",hw_vendor="NVIDIA",` + who + rest: 50}, having(got, "gpu_pool_allocated_bytes"))
	require.Equal(t, map[string]float64{`{device="0",hw_vendor="NVIDIA",` + who + rest: 64}, having(got, "gpu_pool_reserved_bytes"))
	require.Equal(t, map[string]float64{`{device="0",hw_vendor="NVIDIA",` + who + rest: 2}, having(got, "gpu_pool_ooms_total"))
	for series, v := range having(got, "mem_alloc_bytes_total") {
		require.EqualValues(t, 100, v, "the reference dashboard knows the driver's only: %s", series)
	}

	require.Empty(t, having(got, "gpu_pool_requested_bytes_total"), "without --waste there is none of it")
	require.Empty(t, having(got, "gpu_tensor_rounding_bytes"))

	tensors := held(server, profile.KindTensor, 0, 90, 50)
	tensors.RoundingBytes, tensors.FragmentedBytes = 7, 9
	run.Rows([]profile.Row{held(server, "device", 0, 100, 60), tensors}, over())
	run.Pools([]Pool{{Series: Series{Process: server, Device: 0}, AllocatedBytes: 50, ReservedBytes: 64,
		Requests: 3, RequestedBytes: 80, RoundingBytes: 10, OddRequests: 1}})
	got = scrape(t, p.addr)
	for name, want := range map[string]float64{"gpu_pool_requested_bytes_total": 80, "gpu_pool_rounding_bytes_total": 10, "gpu_pool_odd_requests_total": 1} {
		require.Equal(t, map[string]float64{`{device="0",hw_vendor="NVIDIA",` + who + rest: want}, having(got, name))
	}
	for name, want := range map[string]float64{"gpu_tensor_rounding_bytes": 7, "gpu_tensor_fragmented_bytes": 9} {
		require.Equal(t, map[string]float64{`{device="0",hw_vendor="NVIDIA",` + who + `,kind="tensor"` + rest: want}, having(got, name))
	}

	run.Pools(nil)
	require.Empty(t, having(scrape(t, p.addr), "gpu_pool_"))
}

// The error ends the process before the next reading: its pool is gone then, and what it was refused is not.
func TestRefusalsOfAPoolOutliveIt(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store})
	server := proc(1, 10)
	rows := []profile.Row{held(server, "device", 0, 100, 60), held(server, profile.KindTensor, 0, 90, 50)}
	run.Rows(rows, over())
	run.Pools([]Pool{{Series: Series{Process: server}, AllocatedBytes: 50}})
	values := func(name string) (all []float64) {
		for _, v := range having(scrape(t, p.addr), name) {
			all = append(all, v)
		}
		return all
	}
	require.Equal(t, []float64{0}, values("gpu_tensor_failures_total"))

	run.Failed(Series{Process: server, Kind: profile.KindTensor}, 1<<30)
	run.Rows(rows, over(1))
	run.Pools(nil)
	got := scrape(t, p.addr)
	require.Empty(t, having(got, "gpu_pool_"))
	for _, v := range having(got, "gpu_tensor_failures_total") {
		require.EqualValues(t, 1, v)
	}
	require.Len(t, having(got, "gpu_tensor_failures_total"), 1)
	require.Empty(t, values("gpu_tensor_failures_total"), "one more scrape has it")
}

// A counter that two runs observe with the same labels would be their sum.
func TestPoolsSeenByTwoGadgetsCountOnce(t *testing.T) {
	store := &Store{}
	first, second := store.NewRun("cuda_alloc"), store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store})
	pool := func(id uint64, ooms int64) Pool {
		return Pool{Series: Series{Process: proc(id, uint32(10*id))}, AllocatedBytes: 50, OOMs: ooms, Requests: 3, RequestedBytes: 80}
	}
	first.Pools([]Pool{pool(1, 2)})
	second.Pools([]Pool{pool(1, 1), pool(2, 5)})
	sum := func(name string) (sum float64) {
		for _, v := range having(scrape(t, p.addr), name) {
			sum += v
		}
		return sum
	}
	require.Equal(t, 2.0+5.0, sum("gpu_pool_ooms_total"), "the one that started first has seen more")
	require.Equal(t, 2*80.0, sum("gpu_pool_requested_bytes_total"))
	require.Equal(t, 2*50.0, sum("gpu_pool_allocated_bytes"))
	first.Close()
	require.Equal(t, 1.0+5.0, sum("gpu_pool_ooms_total"))
}
