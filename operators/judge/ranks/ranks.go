// SPDX-License-Identifier: Apache-2.0

// Package ranks is the Inspektor Gadget operator that reports which rank keeps the
// collectives of the gadget nccl_trace waiting. It joins what the gadget counted with
// what the ranks' threads do, lets internal/collective judge once a second, and adds
// two data sources: collectives, the progress of each rank, and hangs, the verdicts.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/ras"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

const (
	// Name of the operator.
	Name = "ranks"
	// Priority is after the gadget's instantiation (-1000), before the container
	// managers (-1) look which fields want a container's name.
	Priority = -90

	communicators = "communicators"
	peers         = "peers"
	// subscription is behind the operator that names stacks.
	subscription = 9000

	paramHang      = "hang"
	paramStraggler = "straggler"
	paramRAS       = "ras"
	paramSlowdown  = "slowdown"

	period = time.Second
)

// Config of the operator.
type Config struct {
	// ProcFS is the host's procfs; default /proc.
	ProcFS string
	// Dump reads the Python stacks that threads have now; nil: the last ones that the
	// gadget saw are all there is.
	Dump Dumper
	// Store receives the progress of the ranks, for metrics; may be nil.
	Store *Store
	// RAS asks NCCL's RAS service of a process; default: at the address that it listens
	// at.
	RAS func(ctx context.Context, pid uint32) (*ras.Status, error)
	// GPUs follows what happens to GPUs; nil, or an error: nothing is known about them.
	GPUs func() (GPUs, error)
}

// Operator implements operators.DataOperator.
type Operator struct{ cfg Config }

// New returns the operator, to be registered by main.
func New(cfg Config) *Operator {
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	if cfg.RAS == nil {
		cfg.RAS = ask(cfg.ProcFS)
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
		{Key: paramHang, Title: "Hang", Description: "Report the missing rank when others have waited this long in a collective of NCCL",
			DefaultValue: "30s", TypeHint: api.TypeDuration},
		{Key: paramStraggler, Title: "Straggler", Description: "Report a rank as a straggler if it arrives this much later than the others, at the median",
			DefaultValue: "10ms", TypeHint: api.TypeDuration},
		{Key: paramSlowdown, Title: "Slowdown", Description: "Report since which step iterations take this many percent longer than before, such as 20; for training, since a server's iterations are as far apart as its requests; 0: do not",
			DefaultValue: "0", TypeHint: api.TypeInt},
		{Key: paramRAS, Title: "RAS", Description: "Query NCCL's own RAS service about each verdict, and show its answer (NCCL 2.28.9 and later)",
			DefaultValue: "false", TypeHint: api.TypeBool},
	}
}

// InstantiateDataOperator stays out of gadgets without communicators, and of clients:
// the processes are on the other machine.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	source := gc.GetDataSources()[communicators]
	if gc.IsClient() || source == nil || source.Type() != datasource.TypeArray || source.GetField("ring") == nil {
		return nil, nil
	}
	i := &instance{cfg: o.cfg, image: gc.ImageName(), source: source, rows: map[rankKey]*rank{}, processes: map[uint64]*process{}}
	read := func(name string, to *time.Duration) error {
		if values[name] == "" {
			return nil
		}
		d, err := duration.Parse(values[name])
		if err != nil || d <= 0 {
			return fmt.Errorf("--%s: %q is not a duration like 30s", name, values[name])
		}
		*to = d
		return nil
	}
	cfg := collective.Config{}
	if err := errors.Join(read(paramHang, &cfg.Hang), read(paramStraggler, &cfg.Straggler)); err != nil {
		return nil, err
	}
	var err error
	if cfg.Slowdown, err = slowdown(values[paramSlowdown]); err != nil {
		return nil, err
	}
	if v := values[paramRAS]; v != "" {
		if i.asksRAS, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("--%s: want true or false, not %q", paramRAS, v)
		}
	}
	if i.analyzer, err = collective.New(cfg); err != nil {
		return nil, err
	}
	if i.out, err = newOutput(gc); err != nil {
		return nil, fmt.Errorf("add data sources: %w", err)
	}
	if ds := gc.GetDataSources()[operations]; ds != nil {
		if err := addBandwidth(ds); err != nil {
			return nil, fmt.Errorf("add the bandwidth to %s: %w", operations, err)
		}
	}
	return i, nil
}

// rank is one communicator of one process.
type rank struct {
	row
	// changed is when it last issued something.
	changed collective.Time
	seen    collective.Time
	peers   []collective.Progress
}

// process is one with ranks.
type process struct {
	pid     uint32
	mntns   uint64
	started uint64 // clock ticks since boot; 0: not looked yet
	gone    bool
	// callers are the threads that have called NCCL, at most maxCallers.
	callers map[uint32]bool
	// place is from a dump of all threads: that of the one to blame.
	place   place
	dumped  collective.Time // when that was begun; 0: never
	dumping bool
	// changed is when any of its ranks last issued something.
	changed collective.Time
}

type instance struct {
	cfg      Config
	image    string
	source   datasource.DataSource
	out      *output
	cancel   context.CancelFunc
	wait     sync.WaitGroup
	warnings throttle.Throttle
	// called is where a collective was called, by its stack's id.
	called func(process uint64, pid uint32, stack uint64) place
	// libraries are the paths that count as libraries in the run.
	libraries library.Paths

	// reporting keeps reports of verdicts in order; it is taken before mu.
	reporting sync.Mutex

	mu        sync.Mutex // callbacks are concurrent
	analyzer  *collective.Analyzer
	rows      map[rankKey]*rank
	processes map[uint64]*process
	waiting   []found      // that have not been reported yet
	events    []remembered // for the summary
	untold    int
	refused   uint64 // observations that the analyzer did not take
	logger    interface{ Warnf(string, ...any) }
	late      late
	run       *storeRun
	gpus      GPUs // nil: nothing is known
	// asksRAS: NCCL's RAS is queried, was queried about these, and is being queried.
	asksRAS, asking bool
	asked           map[rasKey]bool
}

// Name implements operators.DataOperatorInstance.
func (*instance) Name() string { return Name }

// PreStart subscribes: by now the fields of other operators are there.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	i.logger = gc.Logger()
	reader, err := bind(i.source)
	if err != nil {
		return err
	}
	stacks, ok := symbolize.FromContext(gc)
	if ok {
		i.libraries = stacks.Libraries()
	} else if i.libraries, err = library.Parse(""); err != nil {
		return err
	}
	i.called = func(process uint64, pid uint32, id uint64) place {
		if !ok || id == 0 {
			return place{}
		}
		named := stacks.Stack(process, pid, id).Stack
		python := slices.DeleteFunc(slices.Clone(named), func(f stack.Frame) bool { return f.Kind != stack.KindPython })
		if len(python) == 0 {
			python = stack.Stack{named.Self()}
		}
		return placeOf(0, python)
	}
	if err := i.watchAttachments(gc); err != nil {
		return fmt.Errorf("subscribe to attachments: %w", err)
	}
	if err := i.source.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		i.take(reader, all)
		return nil // an error would keep the rows from other subscribers
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", communicators, err)
	}
	source := gc.GetDataSources()[peers]
	if source == nil || source.Type() != datasource.TypeArray {
		return nil
	}
	peersReader, err := bindPeers(source)
	if err != nil {
		return err
	}
	if err := source.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		i.takePeers(peersReader, all)
		return nil
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", peers, err)
	}
	return nil
}

// take keeps the newest row of each rank.
func (i *instance) take(reader *reader, all datasource.DataArray) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n := range all.Len() {
		r, ok, err := reader.read(all.Get(n))
		if err != nil {
			i.warn("read a communicator: %v", err)
			return
		}
		if !ok {
			continue
		}
		i.put(r)
	}
}

func (i *instance) put(r row) {
	key := rankKey{r.Process.ID, r.handle}
	known := i.rows[key]
	if known == nil {
		known = &rank{}
		i.rows[key] = known
	}
	moved := len(r.Operations) > 0 && (len(known.Operations) == 0 ||
		r.Operations[len(r.Operations)-1].Enter != known.Operations[len(known.Operations)-1].Enter)
	p := i.processes[r.Process.ID]
	if p == nil {
		p = &process{pid: r.Process.PID, mntns: r.mntns, callers: map[uint32]bool{}}
		i.processes[r.Process.ID] = p
	}
	if len(p.callers) < maxCallers {
		p.callers[r.tid] = true
	}
	if moved || known.changed == 0 {
		known.changed, p.changed = r.At, max(p.changed, r.At)
	}
	r.keep(&known.row)
	known.row, known.seen = r, r.At
}

func (i *instance) takePeers(reader *peersReader, all datasource.DataArray) {
	i.mu.Lock()
	defer i.mu.Unlock()
	fresh, err := reader.all(all)
	if err != nil {
		i.warn("%v", err)
		return
	}
	for key, progress := range fresh {
		if r := i.rows[key]; r != nil {
			r.peers = progress
		}
	}
}

func (i *instance) warn(format string, args ...any) {
	if suppressed, ok := i.warnings.Pass(time.Now()); ok {
		i.logger.Warnf("ranks: "+format+" (%d more like this)", append(args, suppressed)...)
	}
}

// Start begins to judge, once a second.
func (i *instance) Start(gc operators.GadgetContext) error {
	ctx, cancel := context.WithCancel(gc.Context())
	i.cancel = cancel
	if i.cfg.Store != nil {
		i.run = i.cfg.Store.begin()
	}
	i.followGPUs()
	i.late.began = bootTime()
	i.wait.Go(func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				i.judge(ctx, bootTime())
			}
		}
	})
	return nil
}

// Stop ends it.
func (i *instance) Stop(operators.GadgetContext) error {
	if i.cancel != nil {
		i.cancel()
		i.wait.Wait()
		i.cancel = nil
		i.report(0)
		i.forgetGPUs()
	}
	return nil
}

// PostStop repeats the verdicts: lines between tables are overwritten.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := bootTime()
	for n := range i.events {
		gc.Logger().Warn(i.events[n].String(now))
	}
	if i.untold > 0 {
		gc.Logger().Warnf("%d more verdicts: see --jsonl-out or -o hangs:json", i.untold)
	}
	if i.refused > 0 {
		gc.Logger().Warnf("%d observations of ranks were not judged, or not in whole: too many ranks or peers, or contradictions", i.refused)
	}
	i.events, i.untold, i.refused = nil, 0, 0
	i.end()
	return nil
}

// Close is called without Start and Stop too.
func (i *instance) Close(gc operators.GadgetContext) error {
	err := i.Stop(gc)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.end()
	return err
}

func (i *instance) end() {
	if i.run != nil {
		i.run.close()
		i.run = nil
	}
}
