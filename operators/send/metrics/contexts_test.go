// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

func TestIdleContextsAreReported(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store, sources: []Source{&idleContexts{store: store}}})
	process := profile.Process{ID: 1, PID: 7, Comm: "python3", Namespace: "ml", Pod: "train-3"}
	on := func(kind string, device int32, bytes int64) profile.Row {
		row := held(process, kind, device, bytes, 0)
		row.AllocObjects, row.InuseObjects = 1, 1
		return row
	}
	rows := []profile.Row{on(profile.KindContext, 0, 0), on(profile.KindContext, 3, 0), on("device", 3, 100)}
	run.Rows(rows, over())
	require.Equal(t, map[string]float64{
		`{device="0",k8s_container_name="",k8s_namespace_name="ml",k8s_pod_name="train-3",process_comm="python3",process_pid="7"}`: 1,
	}, having(scrape(t, p.addr), "gpu_context_idle"))

	run.Calls([]Sample{onDevice(0, called(process, Call{Operation: "launch"}, 1, 1, 1))}, over())
	require.Empty(t, having(scrape(t, p.addr), "gpu_context_idle"), "it launches there")
}
