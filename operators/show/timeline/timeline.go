// SPDX-License-Identifier: Apache-2.0

// Package timeline is the Inspektor Gadget operator that draws what happened, and
// when: each call of the driver, and, where it is requested, what the threads did on
// the host meanwhile. It asks the gadget for events, which it does not send
// otherwise, puts them in order (package weave), and writes them as they come:
//
//	--timeline-out   a trace for Perfetto and chrome://tracing (package trace)
//	--timeline-html  a page that needs nothing else (package page)
//	--events-out     the events themselves, as JSON lines (package lines) or, to a file
//	                 whose name ends in .parquet, as a table (package columns)
//	--gpu-idle       what the GPU waited for, at the end of the run (package idle)
//
// With --beside other gadgets run inside of the run, and draw into the same files.
//
// Nothing is kept but a window of events, so a run may be long. What cannot be
// written in time stays in the kernel's ring buffer; what that has no room for is
// counted under drops (event_lost), and said in the file.
//
// Files are written where the gadget runs, so the parameters are for local runs.
package timeline

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

const (
	// Name of the operator.
	Name = "timeline"
	// Priority is last, after all that add to events. Its changes to the gadget are
	// made when it is instantiated, before the gadget's Start.
	Priority = 9995
	// subscription is as the sink's: after the filter.
	subscription = 9100

	paramTrace  = "timeline-out"
	paramPage   = "timeline-html"
	paramEvents = "events-out"
	paramWith   = "with"
	paramIdle   = "gpu-idle"

	callEvents      = "call_events"      // of cuda_kernel
	operationEvents = "operation_events" // of nccl_trace
	hostEvents      = "host_events"
	allocRows       = "allocs" // of cuda_alloc

	// modeNone keeps a data source from being printed. See Inspektor Gadget's cli.
	annotationMode = "cli.default-output-mode"
	modeNone       = "none"
)

// Config of the operator.
type Config struct {
	// ProcFS is the host's procfs; default /proc.
	ProcFS string
}

// Operator is to be registered once per process.
type Operator struct{ cfg Config }

// New returns the operator.
func New(cfg Config) *Operator {
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	return &Operator{cfg}
}

// Name implements operators.DataOperator.
func (*Operator) Name() string { return Name }

// Init implements operators.DataOperator.
func (*Operator) Init(*params.Params) error { return nil }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return nil }

// Priority implements operators.DataOperator.
func (*Operator) Priority() int { return Priority }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params {
	return api.Params{
		{Key: paramTrace, Title: "Timeline", Description: "Write each call to this file as it happens, as a trace for Perfetto and chrome://tracing (JSON, gzip)", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramPage, Title: "Timeline, as a page", Description: "Write the timeline as one HTML file that needs no network to this file when the run ends", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramEvents, Title: "Events", Description: "Write each call, each event of --with and the memory of the processes to this file as they happen, one JSON object per line; to FILE.parquet, calls and events as a table", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramWith, Title: "Host activity", Description: "Record host activity of threads in these files: cpu (on and off CPU), syscalls, memory (resident), python (samples), comma-separated; or all", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramBeside, Title: "Gadgets beside this one", Description: "Also run these gadgets on the same processes, and show their events on the same timeline: cuda_kernel (calls), nccl_trace (collectives), cuda_alloc (memory in use), comma-separated", Tags: []string{api.TagGroupDataCollection}},
		{Key: paramIdle, Title: "What the GPU waited for", TypeHint: api.TypeUint32, DefaultValue: "0", Description: "At the end, report this many places in Python during which streams were idle, an estimate from the calls; better with --with python"},
	}
}

// InstantiateDataOperator takes part in local runs of gadgets with events that ask for
// a file, and in those that are run beside them.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if value, ok := gc.GetVar(varHost); ok {
		g := value.(*guest)
		if err := prepare(gc); err != nil {
			return nil, fmt.Errorf("--%s %s: %w", paramBeside, g.name, err)
		}
		return &instance{guest: g, session: g.session}, nil
	}
	asked, file := "", ""
	for _, name := range []string{paramTrace, paramPage, paramEvents} {
		if values[name] != "" {
			asked, file = name, name
		}
	}
	if idle := values[paramIdle]; idle != "" && idle != "0" {
		asked = paramIdle
	}
	with, err := parseWith(values[paramWith])
	if err != nil {
		return nil, err
	}
	beside, err := parseBeside(values[paramBeside], gc.ImageName())
	if err != nil {
		return nil, err
	}
	calls, _ := eventsOf(gc)
	if calls != nil { // also where no file is requested: then its default mode is requested
		calls.AddAnnotation(annotationMode, modeNone)
	}
	switch {
	case gc.IsClient() || calls == nil:
		return nil, nil
	case asked == "" && len(with) > 0:
		return nil, fmt.Errorf("--%s needs --%s, --%s, --%s or --%s", paramWith, paramTrace, paramPage, paramEvents, paramIdle)
	case asked == "" && len(beside) > 0:
		return nil, fmt.Errorf("--%s needs --%s, --%s, --%s or --%s", paramBeside, paramTrace, paramPage, paramEvents, paramIdle)
	case asked == "":
		return &instance{}, nil // so that the parameters are known
	case gc.IsRemoteCall() && file != "":
		return nil, fmt.Errorf("operator.%s.%s: a daemon writes no files for its clients", Name, file)
	}
	if err := prepare(gc); err != nil {
		return nil, fmt.Errorf("--%s: %w", asked, err)
	}
	if err := startHost(gc, with); err != nil {
		return nil, fmt.Errorf("--%s: %w", paramWith, err)
	}
	return &instance{procfs: o.cfg.ProcFS, values: values, with: with, beside: beside, session: &session{}}, nil
}

// instance is one run.
type instance struct {
	*session
	procfs string
	values api.ParamValues // nil: nothing is requested
	with   []string
	beside []string
	guest  *guest // not nil: this is a run beside another one, whose session it is

	failure ig.Failure
	guests  *guests
	rings   *rings
	stop    chan struct{}
	wait    sync.WaitGroup
}

// Name implements operators.DataOperatorInstance.
func (*instance) Name() string { return Name }

// PreStart opens the files, so that one that cannot be written is an error before
// anything is attached, and subscribes.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	if i.guest != nil {
		return i.subscribe(gc)
	}
	if i.values == nil {
		return nil
	}
	rec, err := open(i.procfs, i.values)
	if err != nil {
		return err
	}
	i.rec = rec
	err = i.subscribe(gc)
	if err == nil {
		i.guests, err = startGuests(gc, i.session, i.beside)
	}
	if err != nil {
		return errors.Join(err, i.PostStop(gc))
	}
	return nil
}

// Start begins to have events read, and to write new events once a second, also where
// nothing comes.
func (i *instance) Start(gc operators.GadgetContext) error {
	if i.values == nil && i.guest == nil {
		return nil
	}
	rings, err := openRings(gc, ringMaps)
	if err != nil { // a guest does not become ready, and its end has the error
		return i.failure.Started(gc, fmt.Errorf("read the gadget's events: %w", err))
	}
	i.rings = rings
	i.stop = make(chan struct{})
	if i.guest != nil {
		defer i.guest.isReady()
	}
	memory := &memory{procfs: i.procfs, sysfs: "/sys", pages: newPages()}
	i.wait.Go(func() {
		ticks := time.NewTicker(wakeInterval)
		defer ticks.Stop()
		for n := 1; ; n++ {
			select {
			case <-i.stop:
				return
			case <-ticks.C:
			}
			i.rings.wake()
			if n%int(time.Second/wakeInterval) != 0 || i.guest != nil {
				continue // whose run it is writes
			}
			read := i.readMemory(memory)
			i.mu.Lock()
			if read != nil {
				i.rec.remember(read)
			}
			i.rec.tick(bootNow(), gc.Logger())
			i.mu.Unlock()
		}
	})
	return nil
}

// readMemory reads the memory of the processes; nil: no file is to have it.
func (i *instance) readMemory(m *memory) *reading {
	i.mu.Lock()
	seen := i.rec.seen
	var all []process
	if seen != nil {
		all = seen.list()
	}
	i.mu.Unlock()
	if seen == nil {
		return nil
	}
	return m.look(all)
}

// PreStop waits until all that has happened so far was read: a gadget that stops
// leaves what is still in its rings.
func (i *instance) PreStop(gc operators.GadgetContext) error {
	i.guests.stop()
	if i.rings == nil {
		return nil
	}
	if left := i.rings.drain(drainLimit); left > 0 {
		gc.Logger().Warnf("timeline: %d bytes of events are missing: not read within %v", left, drainLimit)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.drop("bytes_not_read", left)
	}
	return nil
}

// drop notes how many events the gadget has lost, by reason. The caller holds mu.
func (i *instance) drop(reason string, n uint64) {
	if i.guest != nil {
		reason = i.guest.name + " " + reason
	}
	i.rec.drop(reason, n)
}

// Stop ends the clock. Events come until the gadget has stopped, which is later.
func (i *instance) Stop(operators.GadgetContext) error {
	if i.stop != nil {
		close(i.stop)
		i.wait.Wait()
		i.stop = nil
	}
	i.rings.close()
	i.rings = nil
	return nil
}

// PostStop ends the files: the last events are here.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	failed := i.failure.PostStop(gc)
	if i.values == nil {
		return failed // there is none, or it is not ours
	}
	i.guests.stop()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rec == nil {
		return failed
	}
	err := i.rec.close(gc.Logger())
	i.rec = nil
	return errors.Join(failed, err)
}

// Close is called without PostStop too, when a run did not begin.
func (i *instance) Close(gc operators.GadgetContext) error {
	return errors.Join(i.Stop(gc), i.PostStop(gc))
}
