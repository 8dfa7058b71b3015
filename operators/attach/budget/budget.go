// SPDX-License-Identifier: Apache-2.0

// Package budget is the operator that keeps what probes cost the traced threads within a
// share of their CPU time: the traps into the kernel, measured at the start, and the run
// time of our programs, counted by thread (bpf/call/budget.h). Where they take more, a gadget
// becomes cheaper in steps, and logs them: stacks are sampled; frequent calls of cuda_kernel
// are followed in random windows only (bpf/launch/windows.h); cuda_alloc detaches from
// PyTorch's allocator. It goes back when there is room again.
package budget

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/traps"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/attach"
)

const (
	// Name of the operator.
	Name = "budget"
	// Priority is before torch (-150), which asks for the budget.
	Priority = -160

	paramBudget = "budget"
	constant    = "budget_ppm"
	mostPercent = 100
)

// Config of the operator.
type Config struct {
	// Percent without a choice of the user's; 0: no budget.
	Percent float64
}

// Operator implements operators.DataOperator.
type Operator struct{ cfg Config }

// New returns the operator, to be registered by main.
func New(cfg Config) *Operator { return &Operator{cfg} }

func (*Operator) Name() string              { return Name }
func (*Operator) Priority() int             { return Priority }
func (*Operator) Init(*params.Params) error { return nil }
func (*Operator) GlobalParams() api.Params  { return nil }

func (o *Operator) InstanceParams() api.Params {
	return api.Params{{
		Key: paramBudget, Title: "Budget", DefaultValue: strconv.FormatFloat(o.cfg.Percent, 'g', -1, 64),
		Description: "Limit for the overhead of the probes, including their traps into the kernel, in percent of the CPU time of each traced thread. Above it, stacks are sampled, then frequent calls are traced in random windows, and tensors are switched off; 0: no budget, everything is exact (docs/performance.md)",
		TypeHint:    api.TypeFloat64,
	}}
}

// InstantiateDataOperator takes part where a gadget counts what it costs.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	text := strings.TrimSuffix(strings.TrimSpace(values[paramBudget]), "%")
	percent := o.cfg.Percent
	if text != "" {
		var err error
		if percent, err = strconv.ParseFloat(text, 64); err != nil || !(percent >= 0 && percent <= mostPercent) {
			return nil, fmt.Errorf("--%s: want percent from 0 to %d, such as 1 or 0.5, not %q", paramBudget, mostPercent, values[paramBudget])
		}
	}
	if _, ok := gc.GetVar(constant); !ok {
		return nil, nil // a gadget without one
	}
	i := &instance{percent: percent}
	if percent == 0 {
		return i, nil // so that the parameter is offered
	}
	if _, err := ig.MapSpec(gc, "budget_by_thread"); err != nil {
		if errors.Is(err, ig.ErrAbsent) {
			gc.Logger().Warnf("budget: this kernel is too old to account the cost of probes per thread (Linux 6.0 or newer): there is no budget, everything is traced")
			i.percent = 0
			return i, nil
		}
		return nil, err
	}
	if err := ig.SetConstant(gc, constant, uint32(percent*1e4)); err != nil {
		return nil, fmt.Errorf("--%s: %w", paramBudget, err)
	}
	ig.SetBudget(gc, percent)
	points, err := ig.AttachPoints(gc)
	if err != nil {
		return nil, fmt.Errorf("read attach points: %w", err)
	}
	i.inWindows = map[uint32]bool{}
	for _, p := range points {
		if p.InWindows {
			i.inWindows[p.Cookie] = true
		}
	}
	attach.OnStart(gc, func(t *tracer.Tracer) { i.run(gc, t) })
	return i, nil
}

type instance struct {
	ig.Failure
	percent   float64
	inWindows map[uint32]bool
	traps     traps.Cost
	maps      Maps

	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (*instance) Name() string { return Name }

// Start is before that of attach: nothing is probed yet.
func (i *instance) Start(gc operators.GadgetContext) error {
	if i.percent == 0 {
		return nil
	}
	err := i.start(gc)
	if err != nil {
		i.percent = 0
	}
	return i.Started(gc, err)
}

func (i *instance) start(gc operators.GadgetContext) error {
	var err error
	if i.maps, err = find(gc); err != nil {
		return fmt.Errorf("keep a budget: %w", err)
	}
	if i.traps, err = traps.Measure(); err != nil {
		gc.Logger().Warnf("budget: what a probe takes cannot be measured: %v; stacks are sampled within the budget, all calls are traced", err)
		i.percent = 0
		return nil
	}
	gc.Logger().Debugf("budget: a trap takes %v at an entry and %v at a return", i.traps.Entry, i.traps.Return)
	if err := i.maps.SetTraps(i.traps); err != nil {
		return fmt.Errorf("keep a budget: %w", err)
	}
	return nil
}

func find(gc ig.Context) (m Maps, err error) {
	for name, to := range map[string]**ebpf.Map{"budget_traps": &m.Traps, "budget_by_api": &m.ByAPI, "budget_by_thread": &m.ByThread} {
		if *to, err = ig.Map(gc, name); err != nil {
			return m, err
		}
	}
	for name, to := range map[string]**ebpf.Map{"window_gates": &m.Gates, "window_apis": &m.Since, "window_inflight": &m.Inflight, "sample_states": &m.Samples} {
		if *to, err = ig.Map(gc, name); err != nil && !errors.Is(err, ig.ErrAbsent) {
			return m, err
		}
	}
	return m, nil
}

// run begins once attach has attached.
func (i *instance) run(gc operators.GadgetContext, t *tracer.Tracer) {
	if i.percent == 0 {
		return // what it needs is missing
	}
	_, err := ig.MapSpec(gc, "torch_pools")
	cfg := Settings{
		Gadget: gc.ImageName(), Maps: i.maps, Prober: t, Traps: i.traps, Percent: i.percent, InWindows: i.inWindows,
		HasTensors:  err == nil,
		DropTensors: func() error { return dropTensors(func(name string) (*ebpf.Map, error) { return ig.Map(gc, name) }) },
		Info:        gc.Logger().Infof, Warn: gc.Logger().Warnf,
	}
	if name := wantsEach(gc); name != "" && len(cfg.InWindows) > 0 {
		gc.Logger().Infof("budget: with %s, each call is traced: the budget samples stacks only", name)
		cfg.InWindows = nil
	}
	ctx, cancel := context.WithCancel(gc.Context())
	i.cancel = cancel
	i.done.Go(func() {
		if err := NewController(cfg).Run(ctx); err != nil {
			gc.Logger().Warnf("budget: %v; from now on there is no budget, everything is traced", err)
		}
	})
}

// wantsEach is the name of what needs each call, not a part of them: events, times on the
// GPU. They are constants of the object.
func wantsEach(gc ig.Context) string {
	const section = ".rodata"
	spec, err := ig.MapSpec(gc, section)
	if err != nil {
		return ""
	}
	m, err := ig.Map(gc, section)
	if err != nil {
		return ""
	}
	data, err := m.LookupBytes(uint32(0))
	types, ok := spec.Value.(*btf.Datasec)
	if err != nil || !ok {
		return ""
	}
	for _, v := range types.Vars {
		name := v.Type.(*btf.Var).Name
		if what := map[string]string{"events": "--events", "timeline_events": "a timeline", "device_times": "--device-times"}[name]; what != "" &&
			int(v.Offset) < len(data) && data[v.Offset] != 0 {
			return what
		}
	}
	return ""
}

// Stop ends the adaptation.
func (i *instance) Stop(operators.GadgetContext) error {
	if i.cancel != nil {
		i.cancel()
		i.cancel = nil
	}
	i.done.Wait()
	return nil
}

// Close implements operators.DataOperatorInstance.
func (i *instance) Close(gc operators.GadgetContext) error { return i.Stop(gc) }
