// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// What is in use has series by its age, of each layer by itself.
func TestScrapeHasAges(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store})
	server := proc(1, 10)
	run.Ages([]Ages{
		{Series{Process: server, Kind: "device"}, []int64{1, 0, 0, 0, 0, 900}},
		{Series{Process: server, Kind: profile.KindTensor}, []int64{0, 20, 0, 0, 0, 0}},
	})
	with := func(age, kind string) string {
		return `{age="` + age + `",device="0",hw_vendor="NVIDIA",k8s_container_name="server",k8s_namespace_name="ml",k8s_pod_name="llm-0",kind="` + kind +
			`",process_comm="python3",process_pid="10"}`
	}
	got := having(scrape(t, p.addr), "gpu_memory_age_bytes")
	require.Len(t, got, 6)
	require.Equal(t, []float64{1, 0, 900}, []float64{got[with("1s", "device")], got[with("10s", "device")], got[with("older", "device")]})
	got = having(scrape(t, p.addr), "gpu_tensor_age_bytes")
	require.Len(t, got, 6)
	require.Equal(t, 20.0, got[with("10s", "tensor")])
	run.Ages(nil)
	require.Empty(t, having(scrape(t, p.addr), "_age_bytes"))
}
