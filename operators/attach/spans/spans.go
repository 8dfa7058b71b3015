// SPDX-License-Identifier: Apache-2.0

// Package spans is the Inspektor Gadget operator behind --spans: rows are kept by the
// span of a trace that the thread worked on. It finds where processes publish that
// span (OpenTelemetry's OTEP 4947) and passes the place to the programs, which read it (bpf/process/span.h).
package spans

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	metadatav1 "github.com/inspektor-gadget/inspektor-gadget/pkg/metadata/v1"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

const (
	// Name of the operator.
	Name = "spans"
	// Priority is after the gadget's instantiation (oci, -1000), before the probes
	// are attached (attach, -100), so that the first calls find their spans.
	Priority = -101
	// tracePriority is before those that filter, sort and send by the trace.
	tracePriority = 40

	param = "spans"

	// Names in the gadgets' eBPF objects.
	constant  = "span_ids"
	sourceMap = "span_source_by_tgid"
	factsMap  = "span_facts_by_id"
	rowsMap   = "rows_by_span"
	stackMap  = "stacks_by_id"
	spanField = "span_id"
)

// Entries of the maps, which have one until spans are requested. A row takes about 150
// bytes of the kernel's memory, in cuda_kernel 400, as it is used; in py_stack all of them at
// once, as do the facts about spans everywhere, 6 MB.
const (
	maxSources = 8192 // MAX_PROCESSES of bpf/process/rows.h
	maxRows    = 32768
)

// Enlarge makes room for spans, before the maps are made.
func Enlarge(specs map[string]*ebpf.MapSpec) {
	specs[sourceMap].MaxEntries = maxSources
	specs[rowsMap].MaxEntries = maxRows
	specs[factsMap].MaxEntries = maxRows
}

// OperatorConfig of the operator.
type OperatorConfig struct {
	// ProcFS is the host's procfs, that of Processes, too.
	ProcFS    string
	Processes Processes
}

// Operator implements operators.DataOperator.
type Operator struct{ cfg OperatorConfig }

// New returns the operator, to be registered by main.
func New(cfg OperatorConfig) *Operator { return &Operator{cfg} }

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
	return api.Params{{Key: param, Title: "Spans", TypeHint: api.TypeBool, DefaultValue: "false",
		Description: "Keep rows by span of a trace, if a process publishes it (OpenTelemetry thread context)"}}
}

// InstantiateDataOperator stays out of runs of gadgets without stacks, and of those on
// the client's side of a connection, where there are no programs.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if _, err := ig.MapSpec(gc, stackMap); gc.IsClient() || errors.Is(err, ig.ErrAbsent) {
		return nil, nil
	}
	i := &instance{op: o}
	if s := values[param]; s != "" {
		var err error
		if i.on, err = strconv.ParseBool(s); err != nil {
			return nil, fmt.Errorf("--%s: %w", param, err)
		}
	}
	if !i.on {
		return i, nil
	}
	specs := map[string]*ebpf.MapSpec{}
	for _, name := range []string{sourceMap, rowsMap, factsMap} {
		var err error
		if specs[name], err = ig.MapSpec(gc, name); err != nil {
			return nil, fmt.Errorf("--%s: this gadget does not support spans, or the kernel is older than 6.0: %w", param, err)
		}
	}
	Enlarge(specs)
	if err := ig.SetConstant(gc, constant, true); err != nil {
		return nil, fmt.Errorf("--%s: configure the gadget: %w", param, err)
	}
	i.facts = &Facts{spans: map[FactsKey]*fact{}}
	gc.SetVar(variable, i.facts)
	for _, ds := range gc.GetDataSources() {
		if f := ds.GetField(spanField); f != nil {
			f.SetHidden(false, false)
			if err := i.addTrace(ds, f); err != nil {
				return nil, fmt.Errorf("--%s: %w", param, err)
			}
		}
	}
	return i, nil
}

// addTrace adds the field of the trace to rows that have a process and a span.
func (i *instance) addTrace(ds datasource.DataSource, span datasource.FieldAccessor) error {
	process := ds.GetField("process")
	if process == nil {
		return nil
	}
	field, err := ds.AddField(TraceID, api.Kind_String, datasource.WithAnnotations(map[string]string{
		metadatav1.DescriptionAnnotation:   "Trace of the span (32 hexadecimal digits; empty if unknown)",
		metadatav1.ColumnsHiddenAnnotation: "true",
		metadatav1.ColumnsWidthAnnotation:  "32",
	}))
	if err != nil {
		return fmt.Errorf("add the field %s to %s: %w", TraceID, ds.Name(), err)
	}
	if err := ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		id, _ := process.Uint64(d)
		text, _ := span.String(d)
		return field.PutString(d, i.facts.Attribute(id, ParseSpan(text), TraceID))
	}, tracePriority); err != nil {
		return fmt.Errorf("subscribe to %s: %w", ds.Name(), err)
	}
	return nil
}

// instance is one run of a gadget.
type instance struct {
	op       *Operator
	on       bool
	facts    *Facts
	follower *Follower

	mu  sync.Mutex
	err error // of Start, until PostStop has returned it
}

// Name implements operators.DataOperatorInstance.
func (*instance) Name() string { return Name }

// Start finds who publishes spans now. It does not fail: Inspektor Gadget would wait
// for its own readers for ever. The run ends instead, and PostStop returns why.
func (i *instance) Start(gc operators.GadgetContext) error {
	if !i.on {
		return nil
	}
	if err := i.start(gc); err != nil {
		i.mu.Lock()
		i.err = fmt.Errorf("--%s: %w", param, err)
		i.mu.Unlock()
		gc.Cancel()
	}
	return nil
}

func (i *instance) start(gc operators.GadgetContext) error {
	m, err := ig.Map(gc, sourceMap)
	if err != nil {
		return err
	}
	facts, err := ig.Map(gc, factsMap)
	if err != nil {
		return err
	}
	i.facts.mu.Lock()
	i.facts.m = facts
	i.facts.mu.Unlock()
	i.follower = NewFollower(Config{
		Attributes: i.facts.attributes(), ProcFS: i.op.cfg.ProcFS, Processes: i.op.cfg.Processes, Table: table{m},
		Info: func(text string) { gc.Logger().Info(Name + ": " + text) },
		Warn: func(text string) { gc.Logger().Warn(Name + ": " + text) },
	})
	return i.follower.Start(gc.Context())
}

// Stop ends the search.
func (i *instance) Stop(operators.GadgetContext) error {
	if i.follower != nil {
		i.follower.Stop()
	}
	return nil
}

// PostStop returns why the run has ended by itself.
func (i *instance) PostStop(operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	err := i.err
	i.err = nil
	return err
}

// Close is called without Start and Stop too.
func (i *instance) Close(gc operators.GadgetContext) error { return i.Stop(gc) }

type table struct{ m *ebpf.Map }

// TableOf is the map of a loaded gadget.
func TableOf(m *ebpf.Map) Table { return table{m} }

func (t table) Put(tgid uint32, s Source) error {
	err := t.m.Put(tgid, s)
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

func (t table) Size() int { return int(t.m.MaxEntries()) }

func (t table) PIDs() (pids []uint32, err error) {
	err = mapiter.Entries(t.m, func(key, _ []byte) { pids = append(pids, binary.NativeEndian.Uint32(key)) })
	return pids, err
}

func (t table) Delete(tgid uint32) error {
	if err := t.m.Delete(tgid); !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}
