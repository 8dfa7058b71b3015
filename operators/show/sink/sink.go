// SPDX-License-Identifier: Apache-2.0

// Package sink is the Inspektor Gadget operator that writes what a gadget found
// to files: a pprof profile and a flame graph when the run ends, JSON lines as
// it goes. Package rows says what it reads; stacks come from the operator symbolize.
//
// Files are written where the gadget runs, so the parameters exist for local
// runs only: a client must not have files written on the node.
package sink

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/flamegraph"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/jsonl"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/recording"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
)

const (
	operatorName = "sink"
	// Priority is just before the exporters of Inspektor Gadget.
	Priority = 9990
	// subscription is after the filter (9000): who filters the table filters
	// the files; and before the limiter (9600): a short table does not make
	// the files incomplete.
	subscription = 9100

	paramPprof = "pprof-out"
	paramFlame = "flamegraph-out"
	paramBase  = "flamegraph-base"
	paramJSONL = "jsonl-out"
	paramMark  = "mark-out"
	paramEvery = "mark-every"
	paramFrame = "mark-on-frame"
	paramDump  = "mark-dump"
	// paramListen is an address of loopback.
	paramListen = "mark-listen"
)

// VarMark is the variable of the gadget's context with what sets a mark (--mark-out), a
// func(); it is not set where there are none.
const VarMark = "gpu-gadgets.mark"

// Config of the operator.
type Config struct {
	// Driver makes what --driver-memory asks; nil: nothing can.
	Driver func() Driver
	// Dump takes the stacks of --mark-dump; nil: nothing can.
	Dump ranks.Dumper
	// Tenant is whom a process belongs to; nil: all belong to one.
	Tenant func(pid uint32) procmaps.Tenant
}

// Operator is to be registered once per process.
type Operator struct{ cfg Config }

// New returns the operator.
func New(cfg Config) *Operator { return &Operator{cfg} }

func (*Operator) Name() string              { return operatorName }
func (*Operator) Init(*params.Params) error { return nil }
func (*Operator) GlobalParams() api.Params  { return nil }
func (*Operator) Priority() int             { return Priority }

func (*Operator) InstanceParams() api.Params {
	return api.Params{
		{Key: paramPprof, Title: "pprof file", Description: "Write a pprof profile to this file when the run ends", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramFlame, Title: "Flame graph", Description: "Write a flame graph (one HTML file) to this file when the run ends", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramBase, Title: "Base of the flame graph", Description: "Compare the flame graph with this pprof file of an earlier run", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramMark, Title: "Marks", Description: "At each SIGUSR1, write a pprof profile of that moment to this path with .1.pb.gz, .2.pb.gz and so on; ig-gpu diff compares them", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramEvery, Title: "Marks by time", TypeHint: api.TypeDuration, Description: "Set a mark (--mark-out) at this interval; ig-gpu leaks finds growth in the marks", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramFrame, Title: "Marks by function", Description: "Set a mark (--mark-out) when traced calls begin to have this Python function on their stack, such as Trainer.save_checkpoint; * matches any characters", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramDump, Title: "Stacks at marks by function", TypeHint: api.TypeBool, DefaultValue: "false", Description: "At each mark of --mark-on-frame, also write where all Python threads of the process are, beside the mark's file (.stacks.txt)", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramListen, Title: "Marks by HTTP", Description: "Set a mark (--mark-out) at each POST to /mark of this loopback address, such as 127.0.0.1:9411, which returns the name of the mark's file, and at each OpenTelemetry event gpu_gadgets.mark (OTLP, /v1/logs)", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramSnapshot, Title: "Memory snapshot", Description: "Write what a process holds when the run ends to this file, as PyTorch's memory snapshot (.pickle): segments, blocks and their stacks, for pytorch.org/memory_viz", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramJSONL, Title: "JSON lines", Description: "Write changed rows and refused allocations to this file, one JSON object per line; for each single call of cuda_kernel, use --events-out", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramDriver, Title: "Memory that no stack explains", TypeHint: api.TypeBool, DefaultValue: "false", Description: "Add memory that NVIDIA's driver counts for the processes beyond their stacks to the pprof file and flame graph: CUDA context, memory from before attach, the remainder", Tags: []string{api.TagGroupDataCollection}},
	}
}

// InstantiateDataOperator takes part in local runs of gadgets with rows.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if gc.IsRemoteCall() {
		for name, value := range values {
			if value != "" && value != "false" {
				return nil, fmt.Errorf("operator.%s.%s: a daemon writes no files for its clients", operatorName, name)
			}
		}
		return nil, nil
	}
	if gc.IsClient() || rows.Find(gc.GetDataSources()) == nil {
		return nil, nil
	}
	if values[paramBase] != "" && values[paramFlame] == "" {
		return nil, fmt.Errorf("--%s needs --%s", paramBase, paramFlame)
	}
	if err := checkMarks(values); err != nil {
		return nil, err
	}
	snapshots, err := newSnapshots(gc, values[paramSnapshot])
	if err != nil {
		return nil, err
	}
	return &instance{values: values, makeDriver: o.cfg.Driver, dump: o.cfg.Dump, snapshots: snapshots, processes: map[uint64]profile.Process{},
		recorder: recording.Recording{Tenant: o.cfg.Tenant}}, nil
}

type instance struct {
	failure    ig.Failure
	values     api.ParamValues
	makeDriver func() Driver
	dump       ranks.Dumper
	stacks     *symbols.Stacks
	base       *profile.Profile

	subject profile.Subject
	period  time.Duration // between samples; 0 for memory
	line    func(*jsonl.Encoder, time.Time, profile.RowID, profile.Row) error

	files        bool // are to be written
	pprof, flame *file.File
	jsonFile     *os.File

	// mu guards what follows: callbacks are concurrent.
	mu       sync.Mutex
	recorder recording.Recording
	reading  rows.Reading
	// snapshots are nil where none was requested; processes are those with rows, then.
	snapshots *snapshots
	processes map[uint64]profile.Process
	driver    Driver
	marks     *marks
	json      *jsonl.Encoder
	buffer    *bufio.Writer
	jsonErr   error
	ended     bool
}

func (*instance) Name() string { return operatorName }

// PreStart opens the files and subscribes: the fields of other operators exist
// from here on, and an unwritable path fails before anything is attached.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	source, err := rows.Bind(rows.Find(gc.GetDataSources()))
	if err != nil {
		return err
	}
	i.files = i.values[paramPprof] != "" || i.values[paramFlame] != "" || i.values[paramJSONL] != "" ||
		i.values[paramMark] != "" || i.values[paramDriver] == "true" || i.snapshots != nil
	if !i.files {
		return nil
	}
	var ok bool
	if i.stacks, ok = symbolize.FromContext(gc); !ok {
		return errors.New("files and marks need the operator symbolize, which is not active")
	}
	if err := i.subscribe(gc, source); err != nil {
		return err
	}
	err = i.open()
	if err == nil {
		err = i.startDriver(i.makeDriver)
	}
	if err == nil {
		err = i.startMarks(gc)
	}
	if err != nil {
		i.discard()
		return err
	}
	if i.json != nil && gc.GetDataSources()["call_events"] != nil {
		gc.Logger().Infof("sink: --%s has the sums of calls by stack; --events-out has each call", paramJSONL)
	}
	return nil
}

func (i *instance) open() error {
	var err error
	if path := i.values[paramBase]; path != "" {
		if i.base, err = readBase(path); err != nil {
			return fmt.Errorf("--%s: %w", paramBase, err)
		}
		if i.base.Subject != i.subject {
			return fmt.Errorf("--%s: %s is not a profile of the same kind", paramBase, path)
		}
	}
	if path := i.values[paramPprof]; path != "" {
		if i.pprof, err = file.Prepare(path); err != nil {
			return fmt.Errorf("--%s: %w", paramPprof, err)
		}
	}
	if path := i.values[paramFlame]; path != "" {
		if i.flame, err = file.Prepare(path); err != nil {
			return fmt.Errorf("--%s: %w", paramFlame, err)
		}
	}
	if err := i.snapshots.open(); err != nil {
		return err
	}
	if path := i.values[paramJSONL]; path != "" {
		if i.jsonFile, err = file.Create(path); err != nil {
			return fmt.Errorf("--%s: %w", paramJSONL, err)
		}
		i.buffer = bufio.NewWriterSize(i.jsonFile, 64<<10)
		i.json = jsonl.NewEncoder(i.buffer)
	}
	return nil
}

func (i *instance) subscribe(gc operators.GadgetContext, source rows.Source) error {
	sources := gc.GetDataSources()
	i.subject, i.period, i.line = source.Subject, source.Period, (*jsonl.Encoder).Sample
	switch source.Subject {
	case profile.Memory:
		i.line = (*jsonl.Encoder).Row
	case profile.Calls:
		i.line = (*jsonl.Encoder).Call
	}
	if err := source.Data.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		i.rows(gc, source, all)
		return nil // an error would keep the rows from other subscribers
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", source.Data.Name(), err)
	}
	if sources["ooms"] == nil {
		return nil
	}
	ooms, err := rows.BindOOMs(sources["ooms"])
	if err != nil {
		return err
	}
	if err := sources["ooms"].Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		i.oom(gc, ooms, d)
		return nil
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to ooms: %w", err)
	}
	return nil
}

func (i *instance) rows(gc operators.GadgetContext, source rows.Reader, all datasource.DataArray) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return
	}
	now := time.Now()
	i.recorder.Begin(now)
	var current []profile.Row // for the driver
	for _, r := range i.reading.Read(source, all) {
		id, d := r.ID, r.Data
		named := i.stacks.Stack(id.Process, source.PID(d), id.StackID)
		row, changed := i.recorder.See(id, r.Values, source.Version(d, named.Version), func() profile.Row {
			process := source.Process(d)
			if i.snapshots != nil {
				i.processes[process.ID] = process
			}
			return profile.Row{
				Process: process,
				Stack:   rows.Stack(id, source.Kernel(d), named.Stack),
				Kind:    id.Kind, Device: id.Device, Thread: id.Thread, Span: id.Span,
			}
		})
		if i.marks != nil {
			i.marks.frames.see(id, row)
		}
		if changed && i.json != nil {
			i.wrote(gc, i.line(i.json, now, id, row))
		}
		if i.driver != nil {
			current = append(current, row)
		}
	}
	if i.driver != nil {
		i.driver.See(current)
	}
	for _, row := range i.recorder.End() {
		if i.json != nil {
			i.wrote(gc, i.line(i.json, now, row.ID, row.Row))
		}
	}
	i.flush(gc)
	i.mark(gc)
}

// PostStop writes the files: only now have the last rows come.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	if n := i.recorder.Forgotten; n > 0 {
		gc.Logger().Warnf("sink: %d rows of exited processes are not in the files: more than %d", n, recording.MaxGone)
	}
	errs := []error{i.failure.PostStop(gc)}
	if i.pprof != nil || i.flame != nil {
		p := i.whole(i.recorder.Profile())
		p.Subject, p.Period = i.subject, i.period
		for _, note := range p.Notes {
			gc.Logger().Infof("sink: %s", note)
		}
		errs = append(errs,
			finish(&i.pprof, func(w io.Writer) error { return pprof.Encode(w, p) }),
			finish(&i.flame, func(w io.Writer) error {
				return flamegraph.Write(w, flamegraph.Page{Title: titles[i.subject], Profile: p, Base: i.base})
			}),
		)
	}
	errs = append(errs, i.writeSnapshots(gc))
	i.stopDriver()
	i.stopMarks()
	if err := errors.Join(errs...); err == nil && i.jsonErr == nil {
		i.sayWritten(gc)
	}
	if i.jsonFile != nil {
		errs = append(errs, i.jsonErr, i.jsonFile.Close())
		i.jsonFile, i.json = nil, nil
	}
	return errors.Join(errs...)
}

// sayWritten names the files.
func (i *instance) sayWritten(gc operators.GadgetContext) {
	for _, name := range []string{paramFlame, paramPprof, paramSnapshot, paramJSONL} {
		if path := i.values[name]; path != "" {
			gc.Logger().Infof("wrote %s (--%s)", path, name)
		}
	}
}

// Close removes what PostStop did not write.
func (i *instance) Close(operators.GadgetContext) error {
	i.discard()
	return nil
}

// Start implements operators.DataOperatorInstance.
func (i *instance) Start(gc operators.GadgetContext) error {
	return i.failure.Started(gc, i.snapshots.start(gc))
}

// Stop leaves the files open: the last rows come later. The gadget's maps are still there.
func (i *instance) Stop(gc operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.readSnapshot()
}

func (i *instance) discard() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.stopDriver()
	i.stopMarks()
	i.snapshots.discard()
	for _, o := range []**file.File{&i.pprof, &i.flame} {
		if *o != nil {
			(*o).Discard()
			*o = nil
		}
	}
	if i.jsonFile != nil {
		_ = i.jsonFile.Close()
		i.jsonFile = nil
	}
}
