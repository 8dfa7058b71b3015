// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"testing"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/show/timeline"
)

// TestGadgetsBesideHaveTheProcessesOnly: which processes and containers is inherited, what
// is written and sent is not.
func TestGadgetsBesideHaveTheProcessesOnly(t *testing.T) {
	in := &inner{}
	r := New(in, oneImage(t, "cuda_kernel", "cuda_alloc", "nccl_trace"), fit)
	asked := gadgetcontext.New(t.Context(), "cuda_kernel")
	values := api.ParamValues{
		"operator.attach.pid": "7", "operator.LocalManager.host": "true", "operator.timeline.timeline-out": "x",
		"operator.sink.pprof-out": "y", "operator.oci.ebpf.sample": "100",
	}
	require.NoError(t, r.RunGadget(asked, nil, values))
	run, ok := asked.GetVar(timeline.VarRunner)
	require.True(t, ok)
	require.NoError(t, run.(timeline.Runner)(t.Context(), "nccl_trace", map[string]any{"a": 1}))
	require.Equal(t, "nccl_trace", in.gadget.ImageName())
	require.NotNil(t, in.gadget.OrasTarget(), "from the binary")
	value, _ := in.gadget.GetVar("a")
	require.Equal(t, 1, value)
	for _, operator := range in.gadget.DataOperators() {
		require.Contains(t, besideOperators, operator.Name())
	}
	of := api.ParamValues{"operator.attach.pid": "7", "operator.LocalManager.host": "true"}
	require.Equal(t, of, besideParams("nccl_trace", values))
	memory := besideParams("cuda_alloc", values)
	require.Equal(t, "false", memory["operator.oci.ebpf.stacks"])
	require.Equal(t, "7", memory["operator.attach.pid"])
	require.NotContains(t, memory, "operator.timeline.timeline-out")
}
