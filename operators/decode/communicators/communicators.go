// SPDX-License-Identifier: Apache-2.0

// Package communicators is the Inspektor Gadget operator behind --communicators: what NCCL
// takes from the driver is also counted by the communicator that it is for (bpf/nccl/memory), in the
// data source buffers.
package communicators

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/membership"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// Name of the operator.
	Name = "communicators"
	// Priority is before the operator attach (-100) takes the list of functions.
	Priority = -150
	// subscription: the field is there for filter (9000) and sinks.
	subscription = 40

	param = "communicators"
	off   = "off"
	on    = "on"
	auto  = "auto"

	// Source is the data source.
	Source = "buffers"
)

// Operator implements operators.DataOperator.
type Operator struct{}

// New returns the operator, to be registered by main.
func New() *Operator { return &Operator{} }

// Name implements operators.DataOperator.
func (*Operator) Name() string { return Name }

// Priority implements operators.DataOperator.
func (*Operator) Priority() int { return Priority }

// Init implements operators.DataOperator.
func (*Operator) Init(*params.Params) error { return nil }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return nil }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params {
	return api.Params{{Key: param, Title: "Memory of NCCL's communicators", DefaultValue: off, PossibleValues: []string{off, on, auto},
		Description: "Count the memory that NCCL holds by communicator (data source buffers), with probes on NCCL's functions: off, on, or auto (on where the kernel allows it)"}}
}

// InstantiateDataOperator stays out of runs of other gadgets, and of those on the client's
// side of a connection, where there are no programs.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if _, err := ig.MapSpec(gc, "live_by_pointer"); gc.IsClient() || errors.Is(err, ig.ErrAbsent) {
		return nil, nil
	}
	how := values[param]
	if _, err := ig.MapSpec(gc, SumsMap); errors.Is(err, ig.ErrAbsent) {
		if how == on {
			gc.Logger().Warnf("communicators: NCCL's memory is not counted by communicator: that needs Linux 6.0 or newer (--%s); all other rows are as without it", param)
		}
		if how == on || how == auto {
			how = off
		}
	}
	switch how {
	case off, "":
		for _, library := range membership.Libraries {
			ig.SkipLibrary(gc, library)
		}
		return &instance{}, nil
	case on, auto:
	default:
		return nil, fmt.Errorf("--%s: want off, on or auto, not %q", param, how)
	}
	specs := map[string]*ebpf.MapSpec{}
	for _, name := range []string{SumsMap, ownersMap, handlesMap, numbersMap} {
		var err error
		if specs[name], err = ig.MapSpec(gc, name); err != nil {
			return nil, fmt.Errorf("--%s: find a table of the gadget: %w", param, err)
		}
	}
	Enlarge(specs)
	if err := ig.SetConstant(gc, Constant, true); err != nil {
		return nil, fmt.Errorf("--%s: configure the gadget: %w", param, err)
	}
	if ds := gc.GetDataSources()[Source]; ds != nil {
		return &instance{}, addName(ds)
	}
	return &instance{}, nil
}

// addName adds the text by which users know a communicator.
func addName(ds datasource.DataSource) error {
	ds.AddAnnotation("cli.default-output-mode", "columns")
	from := map[string]datasource.FieldAccessor{}
	for _, name := range []string{"number", "handle", "identity", "phase"} {
		if from[name] = ds.GetField(name); from[name] == nil {
			return fmt.Errorf("%s has no field %s: the gadget is older or newer than this program", ds.Name(), name)
		}
	}
	to, err := ds.AddField("communicator", api.Kind_String, datasource.WithAnnotations(map[string]string{
		"description":   "Identity of the communicator; its address if it was created before attach; unknown; or none for ncclMemAlloc",
		"columns.width": "20",
	}))
	if err != nil {
		return fmt.Errorf("add field communicator to %s: %w", ds.Name(), err)
	}
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		number := func(name string) uint64 { n, _ := from[name].Uint64(d); return n }
		phase, _ := from["phase"].String(d)
		return to.PutString(d, profile.CommunicatorName(number("number"), number("identity"), number("handle"), phase))
	}, subscription)
}

type instance struct{}

// Name implements operators.DataOperatorInstance.
func (*instance) Name() string { return Name }

// Start implements operators.DataOperatorInstance.
func (*instance) Start(operators.GadgetContext) error { return nil }

// Stop implements operators.DataOperatorInstance.
func (*instance) Stop(operators.GadgetContext) error { return nil }

// Close implements operators.DataOperatorInstance.
func (*instance) Close(operators.GadgetContext) error { return nil }
