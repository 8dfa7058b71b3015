// SPDX-License-Identifier: Apache-2.0

// Package kernels is the Inspektor Gadget operator that names GPU kernels. Every data
// source with the fields function, process, proc.pid and operation gets
//
//	kernel  the kernel's name, demangled; if its name was not seen, the
//	        program's host stub of the kernel; else [kernel 0x…]
//
// and, if it has a grid,
//
//	shape   blocks × threads of a block, and a ~ where they vary
//
// An error of CUDA_SUCCESS becomes "".
package kernels

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	metadatav1 "github.com/inspektor-gadget/inspektor-gadget/pkg/metadata/v1"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

const (
	operatorName = "kernels"
	// Priority is that of symbolize: before those that filter and sort by the names.
	Priority = 50
	namesMap = "names_by_function" // of bpf/launch/names.h
	// startLimit is how long rows that arrive before Start wait for it, in total.
	startLimit = 30 * time.Second
	// endLimit is how long they wait once the run is to end: Start may still follow, as where
	// a user interrupts a run that has just attached.
	endLimit = 5 * time.Second
)

// Operator is registered once per process.
type Operator struct{ resolver *symbols.Resolver }

// New returns the operator. The resolver may be shared.
func New(r *symbols.Resolver) *Operator { return &Operator{r} }

func (*Operator) Name() string               { return operatorName }
func (*Operator) Init(*params.Params) error  { return nil }
func (*Operator) GlobalParams() api.Params   { return nil }
func (*Operator) InstanceParams() api.Params { return nil }
func (*Operator) Priority() int              { return Priority }

// InstantiateDataOperator adds the fields. It skips gadgets without kernels, and clients,
// because the processes are on the other machine.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	if gc.IsClient() {
		return nil, nil
	}
	i := &instance{ctx: gc.Context(), bound: make(chan struct{})}
	i.names = newNames(i.lookup, o.resolver)
	active := false
	for _, ds := range gc.GetDataSources() {
		in := source{
			function: ds.GetField("function"), process: ds.GetField("process"),
			pid: ds.GetField("proc.pid"), operation: ds.GetField("operation"), varies: ds.GetField("varies"),
			error: ds.GetField("error"), errorRaw: ds.GetField("error_raw"),
		}
		if in.function == nil || in.process == nil || in.pid == nil || in.operation == nil {
			continue
		}
		if err := in.addFields(ds); err != nil {
			return nil, fmt.Errorf("name kernels of %s: %w", ds.Name(), err)
		}
		if err := ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
			i.name(in, d)
			return nil
		}, Priority); err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", ds.Name(), err)
		}
		active = true
	}
	if !active {
		return nil, nil
	}
	return i, nil
}

// source is the fields of one data source.
type source struct {
	function, process, pid, operation, varies datasource.FieldAccessor
	grid, block                               [3]datasource.FieldAccessor
	kernel, shape                             datasource.FieldAccessor
	error, errorRaw                           datasource.FieldAccessor
}

func (s *source) addFields(ds datasource.DataSource) (err error) {
	add := func(name, description, width string) (datasource.FieldAccessor, error) {
		return ds.AddField(name, api.Kind_String, datasource.WithAnnotations(map[string]string{
			metadatav1.DescriptionAnnotation:     description,
			metadatav1.ColumnsWidthAnnotation:    width,
			metadatav1.ColumnsEllipsisAnnotation: string(metadatav1.EllipsisMiddle),
		}))
	}
	if s.kernel, err = add("kernel", "Name of the kernel, demangled", "40"); err != nil {
		return fmt.Errorf("add field kernel: %w", err)
	}
	for i, axis := range []string{"x", "y", "z"} {
		s.grid[i], s.block[i] = ds.GetField("grid_"+axis), ds.GetField("block_"+axis)
		if s.grid[i] == nil || s.block[i] == nil {
			return nil
		}
	}
	if s.shape, err = add("shape", "Blocks of the grid × threads of a block; ~, of the first call, and others vary", "22"); err != nil {
		return fmt.Errorf("add field shape: %w", err)
	}
	return nil
}

type instance struct {
	ctx   context.Context
	names *Names

	once  sync.Once
	bound chan struct{}
	first sync.Once
	late  chan struct{} // closed when waiting must end
	table *ebpf.Map     // from Start on; nil if the gadget has none
}

// lookup waits for the map, which exists from Start on: programs already run before.
func (i *instance) lookup(function uint64) ([]byte, bool) {
	select {
	case <-i.bound: // also at the end of a run, whose rows are read once more
	default:
		select {
		case <-i.bound:
		case <-i.tooLate():
			return nil, false
		}
	}
	if i.table == nil {
		return nil, false
	}
	b, err := i.table.LookupBytes(function)
	return b, err == nil && b != nil
}

// tooLate is closed some time after the first row that arrived before Start, or after the end of the run.
func (i *instance) tooLate() <-chan struct{} {
	i.first.Do(func() {
		late := make(chan struct{})
		i.late = late
		go func() {
			defer close(late)
			limit := time.NewTimer(startLimit)
			defer limit.Stop()
			select {
			case <-limit.C:
			case <-i.ctx.Done():
				time.Sleep(endLimit)
			}
		}()
	})
	return i.late
}

// name writes as much as it can: an error would keep the row from other subscribers.
func (i *instance) name(in source, d datasource.Data) {
	if in.error != nil && in.errorRaw != nil {
		if code, err := in.errorRaw.Uint32(d); err == nil && code == 0 {
			_ = in.error.PutString(d, "")
		}
	}
	function, err := in.function.Uint64(d)
	if err != nil || function == 0 {
		return
	}
	process, _ := in.process.Uint64(d)
	pid, _ := in.pid.Uint32(d)
	operation, _ := in.operation.String(d)
	_ = in.kernel.PutString(d, i.names.Name(process, pid, function, operation == "host"))
	if in.shape != nil {
		if text := in.text(d); text != "" {
			_ = in.shape.PutString(d, text)
		}
	}
}

// varying are the bits of enum row_varies for the shape.
const varying = 1 | 2

func (s *source) text(d datasource.Data) string {
	var n [6]uint32
	for i := range 3 {
		n[i], _ = s.grid[i].Uint32(d)
		n[3+i], _ = s.block[i].Uint32(d)
	}
	if n[0] == 0 {
		return ""
	}
	mark := ""
	if s.varies != nil {
		if bits, _ := s.varies.Uint32(d); bits&varying != 0 {
			mark = "~"
		}
	}
	return fmt.Sprintf("%s%s × %s", mark, extent(n[:3]), extent(n[3:]))
}

// extent returns 80, 80,2 or 80,2,4: trailing ones are omitted.
func extent(n []uint32) string {
	text := fmt.Sprint(n[0])
	switch {
	case n[2] > 1:
		text += fmt.Sprintf(",%d,%d", n[1], n[2])
	case n[1] > 1:
		text += fmt.Sprintf(",%d", n[1])
	}
	return text
}

func (*instance) Name() string { return operatorName }

func (i *instance) Start(gc operators.GadgetContext) error {
	i.once.Do(func() {
		i.table, _ = ig.Map(gc, namesMap)
		close(i.bound)
	})
	return nil
}

func (*instance) Stop(operators.GadgetContext) error  { return nil }
func (*instance) Close(operators.GadgetContext) error { return nil }
