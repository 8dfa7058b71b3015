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
	run.Pools([]Pool{{Series{Process: server, Device: 0}, 50, 64, 2}})
	got := scrape(t, p.addr)
	const who = `k8s_container_name="server",k8s_namespace_name="ml",k8s_pod_name="llm-0"`
	const rest = `,process_comm="python3",process_pid="10"}`
	require.Equal(t, map[string]float64{`{device="0",` + who + `,kind="device"` + rest: 40}, having(got, "gpu_memory_inuse_bytes"))
	require.Equal(t, map[string]float64{`{device="0",` + who + `,kind="tensor"` + rest: 40}, having(got, "gpu_tensor_inuse_bytes"))
	require.Equal(t, map[string]float64{`{device="0",` + who + rest: 50}, having(got, "gpu_pool_allocated_bytes"))
	require.Equal(t, map[string]float64{`{device="0",` + who + rest: 64}, having(got, "gpu_pool_reserved_bytes"))
	require.Equal(t, map[string]float64{`{device="0",` + who + rest: 2}, having(got, "gpu_pool_ooms_total"))
	for series, v := range having(got, "mem_alloc_bytes_total") {
		require.EqualValues(t, 100, v, "the reference dashboard knows the driver's only: %s", series)
	}

	run.Pools(nil)
	require.Empty(t, having(scrape(t, p.addr), "gpu_pool_"))
}
