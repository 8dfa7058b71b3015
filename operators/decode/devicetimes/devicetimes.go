// SPDX-License-Identifier: Apache-2.0

// Package devicetimes is the operator that has cuda_kernel probe a library in the traced
// process, if there is one, that reports from CUPTI when the GPU ran each kernel
// (bpf/launch/device_times.h). It does so on request only: while a tracer listens, the
// library has CUPTI collect, which slows the process. Nothing is injected into any process.
package devicetimes

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

const (
	// Name of the operator.
	Name = "devicetimes"
	// Priority is before the operator attach (-100) reads the list of probes.
	Priority = -150
	// Param is the name of the parameter.
	Param = "device-times"

	constant = "device_times"
	library  = "libparcagpucupti"

	source       = "calls"
	subscription = 60 // behind symbolize (50), before filter (9000)
	// notSeen is shown instead of the stack of a kernel whose launch was not seen.
	notSeen = "[launch not seen]"
)

// sizes of maps that have one entry, or 64 KiB, by default. A kernel's launch is needed
// until the kernel was executed and reported: at 100 launches a second of each of 64
// threads, for ten seconds. The ring is for a second of 20,000 kernels of graphs.
var sizes = map[string]uint32{"device_launches": 65536, "device_ring": 8 << 20}

// Operator implements operators.DataOperator.
type Operator struct{}

// New returns the operator, for main to register.
func New() *Operator { return &Operator{} }

func (*Operator) Name() string              { return Name }
func (*Operator) Priority() int             { return Priority }
func (*Operator) Init(*params.Params) error { return nil }
func (*Operator) GlobalParams() api.Params  { return nil }

func (*Operator) InstanceParams() api.Params {
	return api.Params{{Key: Param, Title: "Device times", TypeHint: api.TypeBool, DefaultValue: "false",
		Description: "Record how long kernels ran on the GPU, as rows of operation kernel. Needs a library with CUPTI in the process that reports it (libparcagpucupti); it collects only while a tracer is attached, which has a cost for the process"}}
}

// InstantiateDataOperator takes part in gadgets with such probes.
func (*Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	ds := gc.GetDataSources()[source]
	if gc.IsClient() || ds == nil || ds.GetField("device_ns") == nil {
		return nil, nil
	}
	on := false
	if s := values[Param]; s != "" {
		var err error
		if on, err = strconv.ParseBool(s); err != nil {
			return nil, fmt.Errorf("--%s: want true or false, not %q", Param, s)
		}
	}
	if !on {
		ig.SkipLibrary(gc, library)
		return instance{}, nil // so that the parameter is accepted
	}
	if err := ig.SetConstant(gc, constant, true); err != nil {
		if errors.Is(err, ig.ErrAbsent) {
			return nil, fmt.Errorf("--%s needs Linux 6.0: %w", Param, err)
		}
		return nil, fmt.Errorf("--%s: configure the gadget: %w", Param, err)
	}
	for name, size := range sizes {
		spec, err := ig.MapSpec(gc, name)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", Param, err)
		}
		spec.MaxEntries = max(spec.MaxEntries, size)
	}
	text, err := ds.AddField("device_time", api.Kind_String, datasource.WithAnnotations(map[string]string{
		"description": "device_ns, human-readable, with its unit", "columns.width": "11", "columns.alignment": "right",
	}))
	if err != nil {
		return nil, fmt.Errorf("add field device_time: %w", err)
	}
	return instance{ds, text}, nil
}

// instance is one run. Without a data source it does nothing.
type instance struct {
	ds   datasource.DataSource
	text datasource.FieldAccessor
}

func (instance) Name() string { return Name }

// PreStart has times shown human-readable, and kernels without a launch marked instead of a
// stack.
func (i instance) PreStart(operators.GadgetContext) error {
	if i.ds == nil {
		return nil
	}
	ns, host := i.ds.GetField("device_ns"), i.ds.GetField("host")
	operation := i.ds.GetField("operation")
	var names []datasource.FieldAccessor // of stacks, if an operator resolves them
	for _, name := range []string{"frame", "user_frame", "where", "stack"} {
		if f := i.ds.GetField(name); f != nil {
			names = append(names, f)
		}
	}
	if operation == nil {
		return errors.New("data source calls has no operation")
	}
	return i.ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		what, _ := operation.String(d)
		if !rows.IsKernel(what) {
			return nil
		}
		n, _ := ns.Uint64(d)
		_ = i.text.PutString(d, short(time.Duration(n)))
		if host != nil {
			_ = host.PutString(d, "") // not 0: it is not a call
		}
		if what == "unseen" {
			for _, f := range names {
				_ = f.PutString(d, notSeen)
			}
		}
		return nil
	}, subscription)
}

// short is a duration with four digits.
func short(d time.Duration) string {
	last := time.Duration(1)
	for d/last >= 10_000 {
		last *= 10
	}
	return d.Round(last).String()
}

func (instance) Start(operators.GadgetContext) error { return nil }
func (instance) Stop(operators.GadgetContext) error  { return nil }
func (instance) Close(operators.GadgetContext) error { return nil }
