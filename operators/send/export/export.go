// SPDX-License-Identifier: Apache-2.0

// Package export is the Inspektor Gadget operator that sends a gadget's results to
// servers while it runs: profiles to Pyroscope and to OpenTelemetry receivers; refused
// allocations, and verdicts on waiting ranks of NCCL, as OpenTelemetry logs.
//
//	rows (each second) → window (10 s) → series → encoded requests → queue → server
//
// The gadget's rows are read in its own callback, which never waits: a window is passed
// on only when the encoder is free, and grows until then. Each receiver has its own
// queue, so that an unreachable one does not affect the others.
//
// Files with secrets are read where the gadget runs and sent to an address that the
// user names, so the parameters of a run exist for local runs only. On a daemon they
// are the administrator's.
package export

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

const (
	operatorName = "export"
	// Priority is just before the exporters of Inspektor Gadget.
	Priority = 9991
	// subscription: as for files, after the filter (9000) and before the limiter
	// (9600).
	subscription = 9100

	// flushTimeout bounds the end of a run if a server is unreachable.
	flushTimeout = 5 * time.Second
	checkTimeout = 3 * time.Second
)

// GPUs finds the GPU of a process. nvml.UUIDs implements it.
type GPUs interface {
	// Of returns the GPU's UUID, "" if it is unknown.
	Of(profile.Process) string
	Close()
}

// Config of the operator.
type Config struct {
	// Register lists the queue of a receiver ("pyroscope", "otlp", "otlp-logs") for
	// publishers of metrics, until remove is called. May be nil.
	Register Register
	// GPUs is called by each run that sends data. It fails if there is no GPU;
	// profiles are then without one. May be nil.
	GPUs func() (GPUs, error)
	// Tenant is whom a process belongs to; nil: all belong to one.
	Tenant func(pid uint32) procmaps.Tenant
	// IsDaemon: the parameters are global, for the daemon's configuration alone, and
	// those of clients are refused. Data of gadget instances is sent, which run for
	// all clients, and not of a client's own runs, which would send it twice.
	IsDaemon bool
}

// Operator is registered once per process.
type Operator struct {
	cfg    Config
	global api.ParamValues
}

// New returns the operator.
func New(cfg Config) *Operator { return &Operator{cfg: cfg} }

func (*Operator) Name() string  { return operatorName }
func (*Operator) Priority() int { return Priority }

// GlobalParams are those of a daemon.
func (o *Operator) GlobalParams() api.Params {
	if o.cfg.IsDaemon {
		return Params()
	}
	return nil
}

// InstanceParams are those of a local run.
func (o *Operator) InstanceParams() api.Params {
	if o.cfg.IsDaemon {
		return nil
	}
	return Params()
}

// Init reads a daemon's configuration. A mistake in it ends the daemon, because no user
// watches its runs.
func (o *Operator) Init(p *params.Params) error {
	o.global = api.ParamValues{}
	if !o.cfg.IsDaemon || p == nil {
		return nil
	}
	for key, value := range p.ParamMap() {
		o.global[key] = value
	}
	_, err := parse(o.global)
	return err
}

// InstantiateDataOperator takes part in local runs of gadgets with rows, and in a
// daemon's instances of them.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if gc.IsClient() {
		return nil, nil
	}
	if gc.IsRemoteCall() {
		if len(values) > 0 {
			return nil, fmt.Errorf("operator.%s.%s is in the daemon's configuration only: it decides where a node's data is sent",
				operatorName, slices.Sorted(maps.Keys(values))[0])
		}
		if !o.cfg.IsDaemon || gc.ID() == "" {
			return nil, nil
		}
		values = o.global
	}
	if sources := gc.GetDataSources(); rows.Find(sources) == nil && sources[hangs] == nil {
		return nil, nil
	}
	s, err := parse(values)
	if err != nil {
		return nil, err
	}
	// Without an instance there would be no parameters: they are requested first.
	return &instance{cfg: o.cfg, settings: s}, nil
}

type instance struct {
	*settings
	cfg    Config
	stacks *symbols.Stacks
	source rows.Source
	sender *Sender // nil: nothing is sent
	gpus   GPUs    // nil: unknown

	// mu guards the fields below: callbacks are concurrent.
	mu       sync.Mutex
	recorder *window.Recorder // nil: the gadget has no rows
	started  bool
	ended    bool
}

func (*instance) Name() string { return operatorName }

// PreStart subscribes and checks that the receivers accept data, so that certain errors
// are reported before anything is attached.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	if !i.enabled() {
		return nil
	}
	if source := gc.GetDataSources()[hangs]; source != nil {
		return i.subscribeHangs(gc, source)
	}
	var ok bool
	if i.stacks, ok = symbolize.FromContext(gc); !ok {
		return errors.New("exporting needs the operator symbolize, which is not active")
	}
	var err error
	if i.source, err = rows.Bind(rows.Find(gc.GetDataSources())); err != nil {
		return err
	}
	i.sender, err = newSender(i.settings, SenderConfig{Register: i.cfg.Register, Log: gc.Logger(), Logs: gc.GetDataSources()["ooms"] != nil})
	if err != nil {
		return err
	}
	i.recorder = window.NewRecorder(i.source.Subject, i.source.Period, i.interval, time.Now())
	if tenant := i.cfg.Tenant; tenant != nil {
		i.recorder.Tenant = func(p profile.Process) procmaps.Tenant { return tenant(p.PID) }
	}
	if err := i.source.Data.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		i.rows(all, time.Now())
		return nil // an error would keep the rows from other subscribers
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", i.source.Data.Name(), err)
	}
	return i.subscribeOOMs(gc)
}

func (i *instance) subscribeOOMs(gc operators.GadgetContext) error {
	source := gc.GetDataSources()["ooms"]
	if source == nil || !i.sender.TakesLogs() {
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
			i.sender.OOM(o)
		}
		return nil
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to ooms: %w", err)
	}
	return nil
}

// rows adds one reading, and passes the window on when it is due and the encoder is free.
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
		named := i.stacks.Stack(id.Process, i.source.PID(d), id.StackID)
		i.recorder.See(id, i.source.Values(d), i.source.Version(d, named.Version), func() profile.Row {
			return profile.Row{
				Process: i.source.Process(d),
				Stack:   rows.Stack(id, i.source.Kernel(d), named.Stack),
				Kind:    id.Kind, Device: id.Device, Thread: id.Thread, Span: id.Span,
			}
		})
	}
	i.recorder.End()
	if i.recorder.Due(now) {
		i.sender.Offer(func() window.Window { return i.recorder.Close(now) })
	}
}

// Start begins to encode.
func (i *instance) Start(gc operators.GadgetContext) error {
	if i.sender == nil {
		return nil
	}
	var gpu func(profile.Process, int32) string
	if i.cfg.GPUs != nil && i.recorder != nil {
		var err error
		if i.gpus, err = i.cfg.GPUs(); err != nil {
			gc.Logger().Debugf("export: profiles have no GPU label: %v", err)
		} else {
			gpus := i.gpus
			gpu = func(p profile.Process, _ int32) string { return gpus.Of(p) }
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.started = true
	i.sender.Start(gpu)
	return nil
}

func (*instance) Stop(operators.GadgetContext) error { return nil }

// PostStop sends the last window: only now have the last rows arrived.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	if forgotten := i.end(true); forgotten > 0 {
		gc.Logger().Warnf("export: %d rows of exited processes were not sent: too many at once", forgotten)
	}
	i.close(flushTimeout)
	return nil
}

// Close cleans up after a run that did not reach PostStop.
func (i *instance) Close(operators.GadgetContext) error {
	i.end(false)
	i.close(0)
	return nil
}

func (i *instance) close(limit time.Duration) {
	if i.sender != nil {
		i.sender.Close(limit)
		i.sender = nil
	}
	if i.gpus != nil {
		i.gpus.Close() // after the sender, which uses it
		i.gpus = nil
	}
}

// end stops adding rows, and passes on those so far.
func (i *instance) end(last bool) (forgotten int64) {
	i.mu.Lock()
	if i.ended {
		i.mu.Unlock()
		return 0
	}
	i.ended = true
	i.mu.Unlock()
	if i.started && last && i.recorder != nil {
		i.sender.Put(i.recorder.Close(time.Now()))
	}
	if i.recorder == nil {
		return 0
	}
	return i.recorder.Forgotten()
}
