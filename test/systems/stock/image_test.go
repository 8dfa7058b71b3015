// SPDX-License-Identifier: Apache-2.0

package stock

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/filter"
	ocihandler "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/oci-handler"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime/local"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// TestImageNamesStacks runs py_stack's image as ig does, on this kernel: to sample a
// processor's clock it needs no kprobes. If ig reads the rows once more at the end, which
// does not always succeed, these have names, too. ig's filter, which runs after the
// module, sees the names.
func TestImageNamesStacks(t *testing.T) {
	bpftest.RequireRoot(t)
	bpftest.RequireMapIterators(t)
	busy := exec.Command("python3", "testdata/busy.py")
	require.NoError(t, busy.Start())
	defer func() { busy.Process.Kill(); busy.Wait() }()

	ctx, interrupt := context.WithTimeout(t.Context(), 2*time.Minute)
	defer interrupt()
	var mu sync.Mutex
	var interrupted, last bool // last: rows came after the interrupt
	var rows []row             // of the process, in the latest table
	see := simple.New("see", simple.WithPriority(20000), simple.OnPreStart(func(gc operators.GadgetContext) error {
		samples := gc.GetDataSources()["samples"]
		pid := samples.GetField("proc.pid")
		return samples.SubscribeArray(func(_ datasource.DataSource, table datasource.DataArray) error {
			mu.Lock()
			defer mu.Unlock()
			last = interrupted
			rows = nil
			for i := range table.Len() {
				r := texts(t, samples, table.Get(i))
				if !strings.HasPrefix(r.frame, "Model.") {
					t.Errorf("not filtered out: %+v", r)
				}
				if p, err := pid.Uint32(table.Get(i)); err == nil && int(p) == busy.Process.Pid {
					rows = append(rows, r)
				}
			}
			if len(rows) > 0 && !interrupted {
				interrupted = true
				interrupt()
			}
			return nil
		}, 20000)
	}))
	gc := gadgetcontext.New(ctx, "ghcr.io/gpu-gadgets/py_stack:latest",
		gadgetcontext.WithDataOperators(ocihandler.OciHandler, filter.FilterOperator, see),
		gadgetcontext.WithOrasReadonlyTarget(image(t, "py_stack")))
	runtime := local.New()
	require.NoError(t, runtime.Init(nil))
	defer runtime.Close()
	require.NoError(t, runtime.RunGadget(gc, nil, map[string]string{
		"operator.oci.verify-image":      "false",
		"operator.filter.filter.samples": `frame~^Model\.`,
	}))

	t.Logf("a table after the interrupt: %v", last)
	require.Contains(t, rows, row{
		frame:  "Model.forward (busy.py:7)",
		stack:  "<module> (busy.py:14); main (busy.py:11); Model.forward (busy.py:7)",
		frames: "Model.forward (busy.py:7); main (busy.py:11); <module> (busy.py:14)",
	})
}
