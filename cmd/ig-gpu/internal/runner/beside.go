// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"maps"
	"strings"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/mapiter"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/timeline"
)

// besideOperators are the operators of a gadget whose data goes to another one's timeline. They
// choose processes, attach, and name: nothing is printed, judged or exported.
var besideOperators = []string{"oci", "ebpf", mapiter.Name, "LocalManager", "torch", "attach", "nccl", "symbolize", "kernels", "reap", timeline.Name}

// besideInherits are whose parameters it has from the requested gadget: which
// processes and containers.
var besideInherits = []string{"operator.attach.", "operator.LocalManager."}

// besideValues are its own parameters: of the memory only the sums are shown, ten times a
// second.
var besideValues = map[string]api.ParamValues{
	"cuda_alloc": {
		"operator.oci.ebpf.stacks": "false",
		"operator.oci.annotate":    "allocs:fetch-interval=100ms",
		"operator.torch.torch":     "off",
	},
}

// offerBeside lets a gadget's timeline run other gadgets inside of its run.
func (r *Runtime) offerBeside(asked runtime.GadgetContext, global *params.Params, values api.ParamValues) {
	asked.SetVar(timeline.VarRunner, timeline.Runner(func(ctx context.Context, gadget string, vars map[string]any) error {
		var ops []operators.DataOperator
		all := operators.GetDataOperators()
		for _, name := range besideOperators {
			if operator, ok := all[name]; ok {
				ops = append(ops, operator)
			}
		}
		inner := gadgetcontext.New(ctx, gadget, gadgetcontext.WithDataOperators(ops...), gadgetcontext.WithLogger(asked.Logger()))
		for name, value := range vars {
			inner.SetVar(name, value)
		}
		if err := r.RunGadget(inner, global, besideParams(gadget, values)); err != nil {
			return fmt.Errorf("run %s: %w", gadget, err)
		}
		return nil
	}))
}

// besideParams are the parameters of a gadget beside one that has these.
func besideParams(gadget string, values api.ParamValues) api.ParamValues {
	out := api.ParamValues{}
	for key, value := range values {
		for _, prefix := range besideInherits {
			if strings.HasPrefix(key, prefix) {
				out[key] = value
			}
		}
	}
	maps.Copy(out, besideValues[gadget])
	return out
}
