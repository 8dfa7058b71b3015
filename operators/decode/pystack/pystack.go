// SPDX-License-Identifier: Apache-2.0

// Package pystack is the Inspektor Gadget operator that runs the gadget py_stack:
// it sets the sampling frequency and the selection of processes, and reads the
// iterator over all threads, once for a dump, again and again for --wall.
package pystack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/cpus"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	gadgetrows "github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

const (
	// Name of the operator.
	Name = "pystack"
	// Priority is after the gadget's instantiation (oci, -1000), before the container
	// managers (-1) check which fields need a container's name.
	Priority = -100

	paramMode      = "mode"
	paramPID       = "pid"
	paramFrequency = "frequency"
	paramWall      = "wall"
	paramGIL       = "gil"
	paramThreads   = "threads"
	paramFormat    = "format"

	modeProfile = "profile"
	modeDump    = "dump"
	formatText  = "text"
	formatRows  = "rows"

	// program is the sampler; sampler and iterator are the arrays that hold it and
	// the iterator.
	program  = "sampler"
	sampler  = "sampler_program"
	iterator = "thread_iterator"
	samples  = "samples"

	// first is a subscription before all others.
	first = -1 << 20

	maxFrequency = 10_000
)

// enum mode of gadgets/py_stack/program.bpf.c.
const (
	onCPU uint32 = iota
	dump
	wall
)

// Config of the operator.
type Config struct {
	// ProcFS is the host's procfs; default /proc.
	ProcFS string
	// Text is where a dump is printed; default os.Stdout.
	Text io.Writer
}

// Operator implements operators.DataOperator.
type Operator struct{ cfg Config }

// New returns the operator, for main to register.
func New(cfg Config) *Operator {
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	if cfg.Text == nil {
		cfg.Text = os.Stdout
	}
	return &Operator{cfg}
}

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
	return api.Params{
		{Key: paramMode, Title: "Mode", Description: "profile: count stacks over time; dump: show each thread's stack once",
			DefaultValue: modeProfile, TypeHint: api.TypeString, PossibleValues: []string{modeProfile, modeDump}},
		{Key: paramPID, Title: "Process IDs", Description: "Sample only these processes (comma-separated) and their descendants",
			TypeHint: api.TypeString},
		{Key: paramFrequency, Title: "Frequency", Description: "Samples per second, of each CPU; with --wall, of each thread",
			DefaultValue: "99", TypeHint: api.TypeUint32},
		{Key: paramWall, Title: "Wall clock", Description: "Profile all threads, including those that sleep or wait",
			DefaultValue: "false", TypeHint: api.TypeBool},
		{Key: paramGIL, Title: "GIL", Description: "Profile only the thread that holds the GIL (CPython 3.7 to 3.13)",
			DefaultValue: "false", TypeHint: api.TypeBool},
		{Key: paramThreads, Title: "By thread", Description: "Profile each thread separately",
			DefaultValue: "false", TypeHint: api.TypeBool},
		{Key: paramFormat, Title: "Format of a dump", Description: "text: printed in the format of py-spy dump; rows: the data source threads, in the format of -o",
			DefaultValue: formatText, TypeHint: api.TypeString, PossibleValues: []string{formatText, formatRows}},
	}
}

// InstantiateDataOperator skips other gadgets, and runs on the client's side of a
// connection, where there are no programs.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if _, err := ig.MapSpec(gc, iterator); gc.IsClient() || errors.Is(err, ig.ErrAbsent) {
		return nil, nil
	}
	i := &instance{op: o}
	if err := i.parse(values); err != nil {
		return nil, err
	}
	// A daemon's output is its log: the client prints rows.
	i.text = i.text && !gc.IsRemoteCall()
	for _, c := range []struct {
		name  string
		value any
	}{{"py_mode", i.mode}, {"py_gil_only", i.gil}, {"py_by_thread", i.threads}} {
		if err := ig.SetConstant(gc, c.name, c.value); err != nil {
			return nil, fmt.Errorf("configure the gadget: %w", err)
		}
	}
	// The span of another thread than the current one cannot be read: it may be
	// changing.
	if on, _ := gc.GetVar("span_ids"); on == true && i.mode != onCPU {
		return nil, fmt.Errorf("--spans is for --%s %s, without --%s", paramMode, modeProfile, paramWall)
	}
	if ds := gc.GetDataSources()[samples]; ds != nil {
		subject := profile.CPUTime
		if i.mode == wall {
			subject = profile.WallTime
		}
		ds.AddAnnotation(gadgetrows.AnnotationSubject, subject.String())
		ds.AddAnnotation(gadgetrows.AnnotationPeriod, (time.Second / time.Duration(i.frequency)).String())
	}
	// ig samples at a fixed period; see clock.
	if err := ig.Skip(gc, program); err != nil {
		return nil, fmt.Errorf("keep ig from sampling: %w", err)
	}
	if i.mode == dump {
		var err error
		if i.rows, err = newRows(gc, i.text); err != nil {
			return nil, fmt.Errorf("add data source %s: %w", DataSource, err)
		}
		if ds := gc.GetDataSources()[samples]; ds != nil {
			// It has no rows now; a printer would print a header.
			if err := ds.SubscribePacket(func(datasource.DataSource, datasource.Packet) error {
				return datasource.ErrDiscard
			}, first); err != nil {
				return nil, fmt.Errorf("silence data source %s: %w", samples, err)
			}
			// Nothing needs to wait for its last rows.
			ds.AddAnnotation(annotationLast, "false")
		}
	}
	return i, nil
}

// instance is one run of the gadget.
type instance struct {
	op        *Operator
	mode      uint32
	pids      []uint32
	frequency int
	gil       bool
	threads   bool
	text      bool
	rows      *rows

	program *ebpf.Program
	link    *link.Iter
	clock   *clock
	cancel  context.CancelFunc
	wait    sync.WaitGroup

	mu  sync.Mutex
	err error // why the run has ended by itself; nil: it is complete
}

func (i *instance) parse(values api.ParamValues) (err error) {
	flag := func(name string) (on bool) {
		if s := values[name]; s != "" && err == nil {
			if on, err = strconv.ParseBool(s); err != nil {
				err = fmt.Errorf("--%s: %w", name, err)
			}
		}
		return on
	}
	if i.pids, err = selection.Parse(values[paramPID]); err != nil {
		return fmt.Errorf("--%s: %w", paramPID, err)
	}
	i.frequency = 99
	if s := values[paramFrequency]; s != "" {
		i.frequency, err = strconv.Atoi(s)
		if err != nil || i.frequency < 1 || i.frequency > maxFrequency {
			return fmt.Errorf("--%s: want 1 to %d samples per second, not %q", paramFrequency, maxFrequency, s)
		}
	}
	i.gil, i.threads = flag(paramGIL), flag(paramThreads)
	if flag(paramWall) {
		i.mode = wall
	}
	i.text = values[paramFormat] != formatRows
	if values[paramMode] == modeDump {
		if i.mode == wall || i.gil {
			return fmt.Errorf("--%s and --%s are for --%s %s", paramWall, paramGIL, paramMode, modeProfile)
		}
		i.mode = dump
	}
	return err
}

// Name implements operators.DataOperatorInstance.
func (*instance) Name() string { return Name }

// PreStart refuses processes that do not exist or whose ids are a container's, and kernels on which another task
// cannot be read.
func (i *instance) PreStart(operators.GadgetContext) error {
	if i.mode != onCPU {
		if err := haveTaskFromPID(); err != nil {
			return err
		}
	}
	if len(i.pids) > 0 {
		if err := selection.CheckNamespace(i.op.cfg.ProcFS); err != nil {
			return fmt.Errorf("--%s: %w", paramPID, err)
		}
	}
	for _, pid := range i.pids {
		if _, err := procmaps.StartTime(i.op.cfg.ProcFS, pid); err != nil {
			return fmt.Errorf("--%s: %w", paramPID, err)
		}
	}
	return nil
}

// Start restricts the run to the selected processes and begins to read. It does not fail:
// Inspektor Gadget would wait for its own readers for ever. The run ends instead, and
// PostStop returns the reason.
func (i *instance) Start(gc operators.GadgetContext) error {
	if err := i.begin(gc); err != nil {
		i.fail(gc, err)
	}
	return nil
}

// fail ends the run, with an error unless it is nil.
func (i *instance) fail(gc operators.GadgetContext, err error) {
	i.mu.Lock()
	i.err = err
	i.mu.Unlock()
	gc.Cancel()
}

// PostStop returns why the run has ended by itself.
func (i *instance) PostStop(operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	err := i.err
	i.err = nil
	return err
}

func (i *instance) begin(gc operators.GadgetContext) error {
	var selected *ebpf.Map
	if len(i.pids) == 0 {
		if err := selection.CheckNamespace(i.op.cfg.ProcFS); err != nil {
			gc.Logger().Warn(err.Error() + selection.NestedRows)
		}
	} else {
		var err error
		if selected, err = i.restrict(gc); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(gc.Context())
	i.cancel = cancel
	if selected != nil && i.mode != dump {
		i.wait.Go(func() { watchEnd(ctx, gc, selected, i.op.cfg.ProcFS) })
	}
	if i.mode == onCPU {
		return i.sampleCPUs(ctx, gc)
	}
	var err error
	if i.program, err = ig.Program(gc, iterator); err != nil {
		return fmt.Errorf("take the gadget's iterator: %w", err)
	}
	if i.link, err = link.AttachIter(link.IterOptions{Program: i.program}); err != nil {
		return fmt.Errorf("attach the iterator over threads (Linux 6.2): %w", err)
	}
	i.wait.Go(func() {
		if i.mode == wall {
			i.sample(ctx, gc)
			return
		}
		// A dump is the whole run.
		i.fail(gc, i.dump(ctx, gc))
	})
	return nil
}

// sampleCPUs has the sampler run on the clock of every CPU.
func (i *instance) sampleCPUs(ctx context.Context, gc operators.GadgetContext) error {
	program, err := ig.Program(gc, sampler)
	if err != nil {
		return fmt.Errorf("take the gadget's sampler: %w", err)
	}
	online, err := cpus.Online()
	if err != nil {
		_ = program.Close()
		return err
	}
	if i.clock, err = newClock(program, online, i.frequency); err != nil {
		return err
	}
	i.wait.Go(func() {
		i.clock.run(ctx, func(err error) { gc.Logger().Warnf("%v: its samples are missing", err) })
	})
	return nil
}

// restrict makes the gadget sample only the processes of --pid, and returns the map that has them.
func (i *instance) restrict(gc ig.Context) (*ebpf.Map, error) {
	inForce, err := ig.Map(gc, selection.InForceMap)
	if err != nil {
		return nil, err
	}
	selected, err := ig.Map(gc, selection.SelectedMap)
	if err != nil {
		return nil, err
	}
	if err := selection.Restrict(inForce, selected, i.op.cfg.ProcFS, i.pids); err != nil {
		return nil, fmt.Errorf("--%s: %w", paramPID, err)
	}
	return selected, nil
}

// Stop waits for the reader.
func (i *instance) Stop(operators.GadgetContext) error {
	if i.cancel != nil {
		i.cancel()
		i.wait.Wait()
		i.cancel = nil
	}
	if i.clock != nil {
		i.clock.close()
		i.clock = nil
	}
	if i.link != nil {
		i.link.Close()
		i.link = nil
	}
	if i.program != nil {
		i.program.Close()
		i.program = nil
	}
	return nil
}

// Close is called without Start and Stop too.
func (i *instance) Close(gc operators.GadgetContext) error { return i.Stop(gc) }
