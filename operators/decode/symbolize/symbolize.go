// SPDX-License-Identifier: Apache-2.0

// Package symbolize is the Inspektor Gadget operator that gives names to the
// stacks of a gadget's rows. Every data source with the fields stack_id,
// process and proc.pid gets
//
//	frame       the innermost Python frame, `qualname (file:line)`; without one
//	            the innermost native frame; [unknown] for a lost stack
//	user_frame  the innermost Python frame that is neither the standard library's nor an
//	            installed package's (--library-paths); without Python the innermost native frame
//	            outside of the driver and the runtime; without one the same as frame
//	where       both, human-readable: `user_frame, in frame`; user_frame alone where they are the
//	            same or frame is the driver's
//	stack       all frames, root first, joined with "; " (hidden in columns)
//
// and one with holder_stacks and holder_bytes gets
//
//	holders  who held most: `12.0 MiB f (x.py:3); …`
//
// Operators in the same process get the frames themselves, with FromContext.
package symbolize

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	metadatav1 "github.com/inspektor-gadget/inspektor-gadget/pkg/metadata/v1"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	operatorName = "symbolize"
	// Priority is after the operators that enrich rows with containers and
	// before those that filter (9000) and sort (9500) by the names.
	Priority       = 50
	paramLibraries = "library-paths"
	// varStacks is the context variable that holds the *symbols.Stacks.
	varStacks = "gpu-gadgets/stacks"
	// startLimit is how long rows that come before Start wait for it. Without
	// a limit, a failure of another operator's Start would leave the goroutine
	// that emits them hanging.
	startLimit = 2 * time.Second
)

// Operator is to be registered once per process.
type Operator struct {
	resolver *symbols.Resolver
}

// New returns the operator. The resolver is shared by all gadget runs, so that
// a library's symbols are read once.
func New(r *symbols.Resolver) *Operator { return &Operator{r} }

// FromContext gives the stacks of this run to other operators, from their
// PreStart on; false if no data source of the gadget has stacks.
func FromContext(gc operators.GadgetContext) (*symbols.Stacks, bool) {
	v, _ := gc.GetVar(varStacks)
	s, ok := v.(*symbols.Stacks)
	return s, ok
}

func (*Operator) Name() string              { return operatorName }
func (*Operator) Init(*params.Params) error { return nil }
func (*Operator) GlobalParams() api.Params  { return nil }
func (*Operator) Priority() int             { return Priority }

// InstanceParams has what counts as a library.
func (*Operator) InstanceParams() api.Params {
	return api.Params{{
		Key: paramLibraries, Title: "Paths of libraries", TypeHint: api.TypeString,
		Description: "Regular expression of the Python files that are not the program's own, for user_frame; with + in front, " +
			"in addition to the default: the standard library and installed packages",
	}}
}

// InstantiateDataOperator adds the fields. It stays out of gadgets without
// stacks, and of clients: the processes are on the other machine.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if gc.IsClient() {
		return nil, nil
	}
	libraries, err := library.Parse(values[paramLibraries])
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", paramLibraries, err)
	}
	maps := newKernelMaps(gc)
	i := &instance{maps: maps, stacks: symbols.NewStacks(o.resolver, maps, libraries)}
	for _, ds := range gc.GetDataSources() {
		in := source{id: ds.GetField("stack_id"), process: ds.GetField("process"), pid: ds.GetField("proc.pid")}
		if in.id == nil || in.process == nil || in.pid == nil {
			continue
		}
		in.holderStacks, in.holderBytes = ds.GetField("holder_stacks"), ds.GetField("holder_bytes")
		if err := in.addFields(ds); err != nil {
			return nil, fmt.Errorf("name stacks of %s: %w", ds.Name(), err)
		}
		if err := ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
			// An error would keep the row from other subscribers.
			if err := i.name(in, d); err != nil {
				i.warn(gc, err)
			}
			if cut := i.stacks.Cut(); i.cut.Swap(cut) != cut {
				i.warn(gc, fmt.Errorf("%d stacks have lost their outer frames ([truncated]): the stacks of a container use too much memory", cut))
			}
			return nil
		}, Priority); err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", ds.Name(), err)
		}
		i.active = true
	}
	if !i.active {
		return nil, nil
	}
	gc.SetVar(varStacks, i.stacks)
	return i, nil
}

// source is the fields of one data source.
type source struct {
	id, process, pid          datasource.FieldAccessor
	holderStacks, holderBytes datasource.FieldAccessor
	frame, user, where, stack datasource.FieldAccessor
	holders                   datasource.FieldAccessor
}

func (s *source) addFields(ds datasource.DataSource) error {
	for _, f := range []struct {
		to          *datasource.FieldAccessor
		name        string
		description string
		width       string
		hidden      string
		wanted      bool
	}{
		{&s.where, "where", "Line of the program, and the library's that it is in", "60", "false", true},
		{&s.user, "user_frame", "Innermost Python frame outside of libraries; without Python, the innermost native frame outside of the driver; else the same as frame", "60", "true", true},
		{&s.frame, "frame", "Innermost Python frame, or native where there is none", "60", "true", true},
		{&s.stack, "stack", "All frames, from the program's start to the call", "100", "true", true},
		{&s.holders, "holders", "Who held most of the memory", "100", "false", s.holderStacks != nil && s.holderBytes != nil},
	} {
		if !f.wanted {
			continue
		}
		accessor, err := ds.AddField(f.name, api.Kind_String, datasource.WithAnnotations(map[string]string{
			metadatav1.DescriptionAnnotation:     f.description,
			metadatav1.ColumnsWidthAnnotation:    f.width,
			metadatav1.ColumnsEllipsisAnnotation: string(metadatav1.EllipsisMiddle),
			metadatav1.ColumnsHiddenAnnotation:   f.hidden,
		}))
		if err != nil {
			return fmt.Errorf("add field %s: %w", f.name, err)
		}
		*f.to = accessor
	}
	return nil
}

type instance struct {
	maps   *kernelMaps
	stacks *symbols.Stacks
	active bool
	cut    atomic.Uint64 // of the stacks, as of the last row
	warned throttle.Throttle
}

func (i *instance) name(in source, d datasource.Data) error {
	process, err := in.process.Uint64(d)
	if err != nil {
		return fmt.Errorf("read process: %w", err)
	}
	pid, err := in.pid.Uint32(d)
	if err != nil {
		return fmt.Errorf("read proc.pid: %w", err)
	}
	id, err := in.id.Uint64(d)
	if err != nil {
		return fmt.Errorf("read stack_id: %w", err)
	}
	n := i.stacks.Stack(process, pid, id)
	for _, f := range []struct {
		name  string
		to    datasource.FieldAccessor
		value string
	}{{"frame", in.frame, n.Frame}, {"user_frame", in.user, n.UserFrame}, {"where", in.where, n.Where}, {"stack", in.stack, n.Folded}} {
		if err := f.to.PutBytes(d, shared(f.value)); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if in.holders == nil {
		return nil
	}
	holders, err := Holders(in.holderStacks, in.holderBytes, d)
	if err != nil {
		return err
	}
	var lines []profile.LineHeld
	for _, h := range holders {
		lines = append(lines, profile.LineHeld{Label: i.stacks.Stack(process, pid, h.StackID).Where, Bytes: h.Bytes})
	}
	if err := in.holders.PutString(d, profile.HeldByLine(lines)); err != nil {
		return fmt.Errorf("write holders: %w", err)
	}
	return nil
}

// shared is a text as bytes that nothing writes to. A full table has megabytes of stacks, which are known
// already and would be copied at each reading: a field of a row refers to them, and is only ever replaced.
func shared(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// Holder is one of the stacks that held most when an allocation was refused.
type Holder struct {
	StackID uint64
	Bytes   int64
}

// Holders reads the arrays holder_stacks and holder_bytes; entries of no bytes
// are empty and left out.
func Holders(stacks, bytes datasource.FieldAccessor, d datasource.Data) ([]Holder, error) {
	ids, err := stacks.Uint64Array(d)
	if err != nil {
		return nil, fmt.Errorf("read holder_stacks: %w", err)
	}
	held, err := bytes.Uint64Array(d)
	if err != nil {
		return nil, fmt.Errorf("read holder_bytes: %w", err)
	}
	var out []Holder
	for i := range min(len(ids), len(held)) {
		if held[i] != 0 {
			out = append(out, Holder{ids[i], int64(held[i])})
		}
	}
	return out, nil
}

func (*instance) Name() string { return operatorName }

func (i *instance) Start(gc operators.GadgetContext) error {
	i.maps.bind(gc)
	return nil
}

func (*instance) Stop(operators.GadgetContext) error  { return nil }
func (*instance) Close(operators.GadgetContext) error { return nil }

func (i *instance) warn(gc operators.GadgetContext, err error) {
	if suppressed, ok := i.warned.Pass(time.Now()); ok {
		gc.Logger().Warnf("symbolize: %v (%d more like this)", err, suppressed)
	}
}
