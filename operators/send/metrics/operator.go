// SPDX-License-Identifier: Apache-2.0

// Package metrics publishes what the gadgets count: GPU memory by (pod, container,
// process, kind, device), losses, and the state of the exporters. It serves Prometheus
// scrapes and pushes by OTLP, both from one store of the latest counters
// (docs/reference/metrics.md lists the metrics).
//
// The store is independent of Inspektor Gadget. Its readers report the series of an ended
// process once more, with its last values; then the series end. The parameters are
// global: the administrator of the daemon decides where metrics go, not the users of
// gadgets.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	log "github.com/sirupsen/logrus"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/frozen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/reap"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

const (
	operatorName = "metrics"
	// Priority is just before the exporters of Inspektor Gadget.
	Priority = 9991
	// subscription is after the filter (9000), so that filtering rows filters the
	// metrics, and before the limiter (9600).
	subscription = 9100

	paramListen   = "metrics-listen"
	paramCert     = "metrics-listen-cert"
	paramKey      = "metrics-listen-key"
	paramClientCA = "metrics-listen-client-ca"
	paramToken    = "metrics-listen-token"
	paramEndpoint = "metrics-otlp-endpoint"
	paramInterval = "metrics-interval"
	paramCluster  = "metrics-cluster"
	paramCompat   = "metrics-compat"
	paramNVML     = "metrics-nvml"
	paramHolders  = "metrics-idle-holders"
	paramFrozen   = "metrics-frozen"

	nvmlAuto = "auto"
	nvmlOff  = "off"

	minInterval  = time.Second
	flushTimeout = 5 * time.Second

	processesMap = "processes_by_id" // of bpf/process/rows.h
)

// Config of the operator.
type Config struct {
	// ProcFS is the host's /proc.
	ProcFS string
	// Queues are the exporters whose state is published.
	Queues *exporters.Registry
	// NVML makes the source of the metrics of the GPUs themselves, which opens the
	// library at path; "": as found by the loader. May be nil.
	NVML func(path string) Source
	// Driver makes the function that returns the bytes that the driver of these GPUs counts
	// now by process; may be nil.
	Driver func(path string) func() map[uint32]int64
	// Sources are additional metrics that are always published.
	Sources []Source
	// Store has the counters; created if nil.
	Store *Store
}

// Operator is registered once per process.
type Operator struct {
	cfg      Config
	settings settings
	sources  []Source
	bad      error // errors in parameters, which keep runs from starting

	mu        sync.Mutex
	runs      int // runs that use the publisher
	publisher *publisher
}

// New returns the data operator.
func New(cfg Config) *Operator {
	if cfg.Store == nil {
		cfg.Store = &Store{}
	}
	if cfg.Queues == nil {
		cfg.Queues = &exporters.Registry{}
	}
	return &Operator{cfg: cfg}
}

// Name implements operators.DataOperator.
func (*Operator) Name() string { return operatorName }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return globalParams() }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params { return nil }

// Priority implements operators.DataOperator.
func (*Operator) Priority() int { return Priority }

// Init reads the parameters. Errors in them are reported when a gadget
// starts: ig only warns about an error here and runs without metrics.
func (o *Operator) Init(p *params.Params) error {
	value := func(key string) string {
		if p == nil || p.Get(key) == nil {
			return ""
		}
		return p.Get(key).AsString()
	}
	o.settings, o.bad = parse(value)
	o.sources = append(slices.Clone(o.cfg.Sources), &idleContexts{store: o.cfg.Store})
	gpus, driver := o.gpus(value(paramNVML))
	if o.settings.idle > 0 {
		o.sources = append(o.sources, &idleHolders{store: o.cfg.Store, driver: driver,
			tracker: holder.Tracker{ProcFS: o.cfg.ProcFS, After: o.settings.idle}})
	}
	if o.settings.frozen > 0 {
		o.sources = append(o.sources, &frozenProcesses{store: o.cfg.Store, driver: driver,
			standstill: frozen.Standstill{ProcFS: o.cfg.ProcFS, After: o.settings.frozen}})
	}
	if gpus != nil {
		o.sources = append(o.sources, gpus)
	}
	return nil
}

// gpus returns the metrics of the GPUs that --metrics-nvml chooses, and what their driver counts by
// process; nil without.
func (o *Operator) gpus(choice string) (source Source, driver func() map[uint32]int64) {
	switch choice {
	case nvmlOff:
		return nil, nil
	case nvmlAuto:
		choice = ""
	}
	if o.cfg.NVML != nil {
		source = o.cfg.NVML(choice)
	}
	if o.cfg.Driver != nil {
		driver = o.cfg.Driver(choice)
	}
	return source, driver
}

// InstantiateDataOperator takes part where the gadget runs, not at its client; and on
// a daemon in its instances only, so that an interactive run, perhaps filtered,
// changes no metric.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	if gc.IsRemoteCall() && gc.ID() == "" {
		return nil, nil
	}
	if gc.IsClient() || o.bad == nil && o.settings.listen == "" && o.settings.endpoint == nil {
		return nil, nil
	}
	sources := gc.GetDataSources()
	if sources["allocs"] == nil && sources["drops"] == nil {
		return nil, nil
	}
	return &instance{operator: o}, nil
}

// acquire opens the endpoints for the first run.
func (o *Operator) acquire() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.publisher == nil {
		p, err := newPublisher(o.settings, &content{store: o.cfg.Store, queues: o.cfg.Queues, sources: o.sources},
			func(text string) { log.Warn(text) })
		if err != nil {
			return err
		}
		o.publisher = p
	}
	o.runs++
	return nil
}

// release pushes a last time, removes the run, and closes the endpoints after the last
// run.
func (o *Operator) release(run *Run) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The run's context is cancelled already.
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	o.runs--
	if o.runs > 0 {
		err := o.publisher.flush(ctx)
		run.Close()
		return err
	}
	err := o.publisher.close(ctx)
	o.publisher = nil
	run.Close()
	return err
}

type instance struct {
	operator *Operator
	run      *Run
}

func (*instance) Name() string { return operatorName }

// PreStart subscribes, and opens the endpoint: a port that is taken fails before
// anything is attached.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	if i.operator.bad != nil {
		return i.operator.bad
	}
	i.run = i.operator.cfg.Store.NewRun(ig.GadgetName(gc.ImageName()))
	err := i.subscribe(gc)
	if err == nil {
		err = i.operator.acquire()
	}
	if err != nil {
		i.run.Close()
		i.run = nil
	}
	return err
}

func (i *instance) subscribe(gc operators.GadgetContext) error {
	sources := gc.GetDataSources()
	run := i.run
	var errs []error
	if ds := sources["allocs"]; ds != nil && ds.Type() == datasource.TypeArray {
		source, err := rows.Bind(ds)
		if err != nil {
			return err
		}
		spans := newMemorySpans()
		errs = append(errs, ds.SubscribeArray(func(_ datasource.DataSource, array datasource.DataArray) error {
			all := make([]profile.Row, 0, array.Len())
			for n := range array.Len() {
				d := array.Get(n)
				id := source.ID(d)
				row := profile.Row{Process: source.Process(d), Kind: id.Kind, Device: id.Device, Values: source.Values(d)}
				all = append(all, row)
				spans.see(id, row)
			}
			ended := i.ended(gc)
			run.Rows(append(all, spans.forgotten(ended)...), ended)
			return nil
		}, subscription))
	}
	errs = append(errs, subscribePools(sources["pools"], run.Pools))
	errs = append(errs, subscribeAges(sources["allocs"], run.Ages))
	errs = append(errs, subscribeBuffers(sources["buffers"], run.Buffers))
	errs = append(errs, subscribeCalls(sources, func() func(profile.Process) bool { return i.ended(gc) }, run.Calls))
	if ds := sources["ooms"]; ds != nil {
		f, err := bindSeries(ds)
		if err != nil {
			return err
		}
		events, err := rows.BindOOMs(ds)
		if err != nil {
			return err
		}
		requested := ds.GetField("requested_bytes")
		errs = append(errs, ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
			if profile.IsOutOfMemory(events.Error(d)) {
				run.Failed(f.read(d), number(requested, d))
			}
			return nil
		}, subscription))
	}
	if ds := sources["drops"]; ds != nil {
		reason, count, bytes := ds.GetField("reason"), ds.GetField("count"), ds.GetField("bytes")
		errs = append(errs, ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
			run.Drop(text(reason, d), number(count, d), number(bytes, d))
			return nil
		}, subscription))
	}
	if ds := sources["attachments"]; ds != nil {
		run.Probes()
		pid, file, status := ds.GetField("pid"), ds.GetField("path"), ds.GetField("status")
		errs = append(errs, ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
			run.Attached(uint32(number(pid, d)), text(file, d), text(status, d) == "attached")
			return nil
		}, subscription))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

// ended reports whether a process has ended, by the gadget's own list of processes, and
// by /proc for those that are not in it because they have no rows (yet).
func (i *instance) ended(gc operators.GadgetContext) func(profile.Process) bool {
	ended := map[uint64]bool{}
	if m, err := ig.Map(gc, processesMap); err == nil {
		if ended, err = reap.Ended(m); err != nil {
			gc.Logger().Debugf("metrics: %v", err)
		}
	}
	return func(p profile.Process) bool { return ended[p.ID] || !i.hasProc(p) }
}

// hasProc reports whether the process exists, also if /proc cannot be read.
func (i *instance) hasProc(p profile.Process) bool {
	_, err := os.Stat(path.Join(i.operator.cfg.ProcFS, strconv.FormatUint(uint64(p.PID), 10)))
	return !os.IsNotExist(err)
}

func (*instance) Start(operators.GadgetContext) error { return nil }
func (*instance) Stop(operators.GadgetContext) error  { return nil }

// PostStop runs after the last rows.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	if i.run == nil {
		return nil
	}
	run := i.run
	i.run = nil
	if err := i.operator.release(run); err != nil {
		gc.Logger().Warnf("metrics: %v", err)
	}
	return nil
}

// Close is for runs that PostStop did not reach.
func (i *instance) Close(gc operators.GadgetContext) error { return i.PostStop(gc) }
