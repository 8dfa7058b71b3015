// SPDX-License-Identifier: Apache-2.0

// Package holders says who held a process's memory when an allocation was refused,
// for gadgets whose programs cannot: before Linux 5.13 a program does not see all
// rows (bpf/program/linux_5_10.h). It reads them when the event arrives, some milliseconds
// after the failure: a caching allocator may have given memory back by then.
package holders

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// Priority is ahead of the operator that names the holders (50).
	Priority = 40

	dataSource   = "ooms"
	instancesMap = "instances_by_number"
	// reuse is how long what was read serves for further failures.
	reuse = 100 * time.Millisecond
)

var rowMaps = []string{"rows_by_stack", "unknown_rows"}

// Operator fills holder_stacks, holder_bytes and inuse_bytes of the data source.
type Operator struct{}

// NewOperator returns the data operator.
func NewOperator() *Operator { return &Operator{} }

func (*Operator) Name() string               { return "holders" }
func (*Operator) Init(*params.Params) error  { return nil }
func (*Operator) GlobalParams() api.Params   { return nil }
func (*Operator) InstanceParams() api.Params { return nil }
func (*Operator) Priority() int              { return Priority }

// InstantiateDataOperator stays out of gadgets that read the rows themselves.
func (*Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	ds, ok := gc.GetDataSources()[dataSource]
	if _, err := ig.MapSpec(gc, instancesMap); !ok || errors.Is(err, ig.ErrAbsent) {
		return nil, nil
	}
	i := &instance{
		process: ds.GetField("process"), stacks: ds.GetField("holder_stacks"),
		bytes: ds.GetField("holder_bytes"), inuse: ds.GetField("inuse_bytes"), kind: ds.GetField("kind"),
		device: ds.GetField("device"),
		known:  map[memory]known{},
	}
	if i.process == nil || i.kind == nil || i.device == nil || i.stacks == nil || i.bytes == nil || i.inuse == nil {
		return nil, fmt.Errorf("find the holders of memory: %s lacks a field", dataSource)
	}
	for _, name := range rowMaps {
		spec, err := ig.MapSpec(gc, name)
		if err != nil {
			return nil, fmt.Errorf("find the holders of memory: %w", err)
		}
		layout, err := layoutOf(spec)
		if err != nil {
			return nil, fmt.Errorf("find the holders of memory: map %s: %w", name, err)
		}
		i.layouts = append(i.layouts, layout)
	}
	return i, ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		// An error would keep the event from other subscribers.
		if err := i.fill(d); err != nil {
			gc.Logger().Warnf("the holders of memory are unknown: %v", err)
		}
		return nil
	}, Priority)
}

type instance struct {
	ig.Failure
	process, stacks, bytes, inuse, kind, device datasource.FieldAccessor
	layouts                                     []layout

	mu        sync.Mutex
	rows      []*ebpf.Map
	instances *ebpf.Map
	known     map[memory]known
}

// known has the facts that were read of a process not long ago.
type known struct {
	at time.Time
	Held
}

func (*instance) Name() string { return "holders" }

func (i *instance) Start(gc operators.GadgetContext) error { return i.Started(gc, i.start(gc)) }

func (i *instance) start(gc operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var err error
	if i.instances, err = ig.Map(gc, instancesMap); err != nil {
		return err
	}
	for _, name := range rowMaps {
		m, err := ig.Map(gc, name)
		if err != nil {
			return err
		}
		i.rows = append(i.rows, m)
	}
	return nil
}

func (*instance) Stop(operators.GadgetContext) error  { return nil }
func (*instance) Close(operators.GadgetContext) error { return nil }

func (i *instance) fill(d datasource.Data) error {
	process, err := i.process.Uint64(d)
	if err != nil {
		return err
	}
	kind, err := i.kind.String(d)
	if err != nil {
		return err
	}
	device, err := i.device.Int32(d)
	if err != nil {
		return err
	}
	held, err := i.held(memory{process, kind == profile.KindHost, profile.RefusedOn(kind, device)})
	if err != nil {
		return err
	}
	var stacks, bytes []byte
	for _, h := range held.Largest {
		stacks = binary.NativeEndian.AppendUint64(stacks, h.Stack)
		bytes = binary.NativeEndian.AppendUint64(bytes, h.Bytes)
	}
	return errors.Join(i.stacks.PutBytes(d, stacks), i.bytes.PutBytes(d, bytes), i.inuse.PutUint64(d, held.Bytes))
}

func (i *instance) held(of memory) (Held, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.rows) == 0 {
		return Held{}, errors.New("not started")
	}
	now := time.Now()
	for p, k := range i.known {
		if now.Sub(k.at) > reuse {
			delete(i.known, p)
		}
	}
	if k, ok := i.known[of]; ok {
		return k.Held, nil
	}
	all := sums{}
	for n, m := range i.rows {
		if err := all.add(of, m, i.layouts[n], i.instances); err != nil {
			return Held{}, err
		}
	}
	h := all.held()
	i.known[of] = known{now, h}
	return h, nil
}
