// SPDX-License-Identifier: Apache-2.0

// Package mapiter is the operator that reads a gadget's maps from user space if the
// kernel refuses the programs that do it (iter/bpf_map_elem), as hardened kernels do.
// Other operators get the same rows at the same times. See internal/ig/mapiter.
package mapiter

import (
	"errors"
	"fmt"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

const (
	// Name of the operator.
	Name = "mapiter"
	// Priority is right after the one that reads the object (-1000), before those that wrap it.
	Priority = -900
	// subscription is before all others, so that rows exist before any operator reads them.
	subscription = -2000000
)

// Operator takes part in gadgets that iterate over maps.
type Operator struct{ refused func() bool }

// New returns the operator, for main to register.
func New() *Operator { return &Operator{refused: mapiter.Refused} }

func (*Operator) Name() string               { return Name }
func (*Operator) Priority() int              { return Priority }
func (*Operator) Init(*params.Params) error  { return nil }
func (*Operator) GlobalParams() api.Params   { return nil }
func (*Operator) InstanceParams() api.Params { return nil }

// InstantiateDataOperator does nothing if the kernel permits iterators, or on the client's
// side of a connection, where there are no programs.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	if gc.IsClient() || !o.refused() {
		return nil, nil
	}
	all, err := ig.TakeMapIterators(gc)
	if errors.Is(err, ig.ErrAbsent) {
		return nil, nil // no eBPF in it
	}
	if err != nil {
		return nil, fmt.Errorf("read maps in user space, because the kernel refuses map iterators: %w", err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	gc.Logger().Debug("the kernel refuses map iterators: maps are read in user space")
	for _, one := range all {
		ds := gc.GetDataSources()[one.Source]
		if ds == nil {
			return nil, fmt.Errorf("data source %s: %w", one.Source, ig.ErrAbsent)
		}
		err := ds.SubscribeArray(func(ds datasource.DataSource, rows datasource.DataArray) error {
			if err := one.Append(gc, ds, rows); err != nil {
				return fmt.Errorf("read map %s: %w", one.Map, err)
			}
			return nil
		}, subscription)
		if err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", one.Source, err)
		}
	}
	return instance{}, nil
}

// instance has nothing to start: rows are read when they are emitted.
type instance struct{}

func (instance) Name() string                        { return Name }
func (instance) Start(operators.GadgetContext) error { return nil }
func (instance) Stop(operators.GadgetContext) error  { return nil }
func (instance) Close(operators.GadgetContext) error { return nil }
