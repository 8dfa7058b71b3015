// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Idle contexts of all nodes are published, where pids and ordinals are the same.
func TestIdleContextsOfNodes(t *testing.T) {
	store := &Store{}
	at, stop, err := Publish(api.ParamValues{paramListen: "127.0.0.1:0"}, Publication{Store: store, Queues: &exporters.Registry{}})
	require.NoError(t, err)
	defer func() { require.NoError(t, stop(t.Context())) }()
	want := map[string]float64{}
	for id, node := range []string{"node-a", "node-b"} {
		process := profile.Process{ID: uint64(id + 1), PID: 7, Comm: "python3", Pod: "train", Node: node}
		var rows []profile.Row
		for _, row := range []profile.Row{held(process, profile.KindContext, 0, 0, 0), held(process, profile.KindContext, 1, 0, 0), held(process, "device", 1, 100, 0)} {
			row.AllocObjects, row.InuseObjects = 1, 1
			rows = append(rows, row)
		}
		store.NewRunOn(node, "cuda_alloc").Rows(rows, over())
		want[`{device="0",k8s_container_name="",k8s_namespace_name="",k8s_node_name="`+node+`",k8s_pod_name="train",process_comm="python3",process_pid="7"}`] = 1
	}
	require.Equal(t, want, having(scrape(t, at), "gpu_context_idle"))
}

// What needs the /proc or a library of a node would do nothing.
func TestPublishHasNoParametersOfNodes(t *testing.T) {
	var all []string
	for _, p := range PublishParams() {
		all = append(all, p.Key)
	}
	require.Contains(t, all, paramListen)
	require.NotContains(t, all, paramNVML)
	require.NotContains(t, all, paramHolders)
	require.NotContains(t, all, paramFrozen)
}
