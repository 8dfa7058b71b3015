// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What NCCL holds has series of its own, by communicator; it is in gpu_memory_*, too.
func TestScrapeHasCommunicators(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store})
	server := proc(1, 10)
	run.Buffers([]Buffers{
		{Series{Process: server, Device: 0, Kind: "vmm"}, "0xabc", "gradients", "init", 3, 64},
		{Series{Process: server, Device: 0, Kind: "vmm"}, "unknown", "", "thread", -1, 2},
	})
	const who = `k8s_container_name="server",k8s_namespace_name="ml",k8s_pod_name="llm-0",kind="vmm"`
	const rest = `process_comm="python3",process_pid="10"`
	require.Equal(t, map[string]float64{
		`{communicator="0xabc",communicator_name="gradients",device="0",hw_vendor="NVIDIA",` + who + `,phase="init",` + rest + `,rank="3"}`: 64,
		`{communicator="unknown",communicator_name="",device="0",hw_vendor="NVIDIA",` + who + `,phase="thread",` + rest + `,rank="-1"}`:     2,
	}, having(scrape(t, p.addr), "gpu_communicator_inuse_bytes"))
	run.Buffers(nil)
	require.Empty(t, having(scrape(t, p.addr), "gpu_communicator_"))
}
