// SPDX-License-Identifier: Apache-2.0

// Package export is the Inspektor Gadget operator that sends what a gadget found to
// servers while it runs: profiles to Pyroscope and to OpenTelemetry receivers, refused
// allocations as OpenTelemetry logs.
//
//	rows (each second) → window (10 s) → series → encoded requests → queue → server
//
// The gadget's rows are read in its own callback, which never waits: a window is
// handed over only when the encoder is free, and grows until then. Behind it each
// receiver has a queue of its own, so that one that is away costs the others nothing.
//
// Files with secrets are read where the gadget runs and sent to an address that the
// user names, so the parameters exist for local runs only.
package export

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/operators/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/operators/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/rows"
	"github.com/gpu-gadgets/gpu-gadgets/operators/symbolize"
	"github.com/gpu-gadgets/gpu-gadgets/operators/symbols"
)

const (
	operatorName = "export"
	// Priority is just before the exporters of Inspektor Gadget.
	Priority = 9991
	// subscription: as for files, the filter (9000) counts, the limiter (9600)
	// does not.
	subscription = 9100

	// flushTimeout bounds what the end of a run takes with a server that is away.
	flushTimeout = 5 * time.Second
	checkTimeout = 3 * time.Second

	// VarGPU names the context variable with a func(profile.Process, int32) string:
	// the UUID of a process's CUDA device. Who knows it sets it before Start.
	VarGPU = "gpu-gadgets.gpu-uuid"
)

// Config of the operator.
type Config struct {
	// Register lists the queue of a receiver ("pyroscope", "otlp", "otlp-logs")
	// for whoever publishes metrics, until remove is called. May be nil.
	Register func(name string, stats func() queue.Stats) (remove func())
}

// Operator is to be registered once per process.
type Operator struct{ cfg Config }

// New returns the operator.
func New(cfg Config) *Operator { return &Operator{cfg} }

func (*Operator) Name() string               { return operatorName }
func (*Operator) Init(*params.Params) error  { return nil }
func (*Operator) GlobalParams() api.Params   { return nil }
func (*Operator) InstanceParams() api.Params { return instanceParams() }
func (*Operator) Priority() int              { return Priority }

// InstantiateDataOperator takes part in local runs of gadgets with rows.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if gc.IsClient() || gc.IsRemoteCall() || rows.Find(gc.GetDataSources()) == nil {
		return nil, nil
	}
	s, err := parse(values)
	if err != nil {
		return nil, err
	}
	// Without an instance there would be no parameters: they are asked for first.
	return &instance{cfg: o.cfg, settings: s, windows: make(chan window.Window, 1)}, nil
}

type instance struct {
	*settings
	cfg     Config
	stacks  *symbols.Stacks
	source  rows.Source
	windows chan window.Window // filled under mu alone, so that there is room when it is empty

	receivers []receiver
	release   []func()       // of the connections, behind the receivers
	logs      *logSender     // nil: none
	encoding  sync.WaitGroup // the goroutine that encodes

	// mu guards what follows: callbacks are concurrent.
	mu       sync.Mutex
	recorder *window.Recorder
	started  bool
	ended    bool
}

func (*instance) Name() string { return operatorName }

// PreStart subscribes and asks the receivers whether they would take something, so
// that what is wrong for sure is told before anything is attached.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	if !i.enabled() {
		return nil
	}
	var ok bool
	if i.stacks, ok = symbolize.FromContext(gc); !ok {
		return errors.New("exporting needs the operator symbolize, which is not active")
	}
	var err error
	if i.source, err = rows.Bind(rows.Find(gc.GetDataSources())); err != nil {
		return err
	}
	if err := i.connect(gc); err != nil {
		i.disconnect(0)
		return err
	}
	i.register()
	i.recorder = window.NewRecorder(i.source.Subject, i.source.Period, i.interval, time.Now())
	if err := i.source.Data.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		i.rows(all, time.Now())
		return nil // an error would keep the rows from everybody else
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", i.source.Data.Name(), err)
	}
	return i.subscribeOOMs(gc)
}

func (i *instance) subscribeOOMs(gc operators.GadgetContext) error {
	source := gc.GetDataSources()["ooms"]
	if source == nil || i.logs == nil {
		return nil
	}
	ooms, err := rows.BindOOMs(source)
	if err != nil {
		return err
	}
	if err := source.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		o, err := ooms.Read(d, i.stacks, time.Now())
		if err != nil {
			gc.Logger().Warnf("export: %v", err)
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		if !i.ended {
			i.logs.put(o)
		}
		return nil
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to ooms: %w", err)
	}
	return nil
}

// rows takes one reading, and hands the window over when it is due and somebody
// has time for it.
func (i *instance) rows(all datasource.DataArray, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return
	}
	i.recorder.Begin()
	for n := range all.Len() {
		d := all.Get(n)
		id := i.source.ID(d)
		i.recorder.See(id, i.source.Values(d), func() profile.Row {
			process := i.source.Process(d)
			return profile.Row{
				Process: process,
				Stack:   i.stacks.Stack(process.ID, process.PID, id.StackID).Stack,
				Kind:    id.Kind, Device: id.Device, Thread: id.Thread, Span: id.Span,
			}
		})
	}
	i.recorder.End()
	if i.recorder.Due(now) && len(i.windows) == 0 {
		i.windows <- i.recorder.Close(now)
	}
}

// Start begins to encode.
func (i *instance) Start(gc operators.GadgetContext) error {
	if !i.enabled() {
		return nil
	}
	config := series.Config{Cluster: i.cluster, Node: i.node, PIDs: i.pids}
	if v, ok := gc.GetVar(VarGPU); ok {
		config.GPU, _ = v.(func(profile.Process, int32) string)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.started = true
	for _, r := range i.receivers {
		r.configure(config)
	}
	i.encoding.Go(func() {
		for w := range i.windows {
			for _, r := range i.receivers {
				r.window(w)
			}
		}
	})
	return nil
}

func (*instance) Stop(operators.GadgetContext) error { return nil }

// PostStop sends the last window: only now have the last rows come.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	if forgotten := i.end(true); forgotten > 0 {
		gc.Logger().Warnf("export: %d rows of exited processes were not sent: too many at once", forgotten)
	}
	for name, s := range i.disconnect(flushTimeout) {
		if s.Lost() > 0 {
			gc.Logger().Warnf("export: %s did not get %d of %d requests (%s): queue full %d, refused %d, run ended %d",
				name, s.Lost(), s.Lost()+s.SentItems, profile.FormatBytes(s.LostBytes), s.LostFull, s.LostRejected, s.LostAtEnd)
		}
	}
	return nil
}

// Close ends what a run that did not get to PostStop has begun.
func (i *instance) Close(operators.GadgetContext) error {
	i.end(false)
	i.disconnect(0)
	return nil
}

// end takes no more rows, and waits until those so far are encoded.
func (i *instance) end(last bool) (forgotten int64) {
	i.mu.Lock()
	if i.ended {
		i.mu.Unlock()
		return 0
	}
	i.ended = true
	i.mu.Unlock()
	if i.started {
		if last {
			i.windows <- i.recorder.Close(time.Now()) // the encoder makes room
		}
		close(i.windows)
		i.encoding.Wait()
	}
	if i.recorder == nil {
		return 0
	}
	return i.recorder.Forgotten()
}
