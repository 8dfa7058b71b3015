// SPDX-License-Identifier: Apache-2.0

// Package torch is the operator for what PyTorch's caching allocator does inside of
// the memory that the driver gave it (bpf/torch/torch.h): it reports whether the allocator is
// followed, keeps what that costs within a budget by sampling blocks, estimates the error
// of sampled sums, and completes the rows of the pools.
package torch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/docker/go-units"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// Name of the operator.
	Name = "torch"
	// Priority is before the operator attach (-100) takes the list of functions.
	Priority = -150
	// subscription: the fields are there for filter (9000) and sinks.
	subscription = 40

	paramTorch  = "torch"
	paramSample = "sample-bytes"
	paramFits   = "fits"
	paramWaste  = "waste"
	auto        = "auto"

	library     = "libc10"
	samplingMap = "torch_sampling"
	poolsMap    = "torch_pools"
	poolsSource = "pools"
)

// Config of the operator.
type Config struct {
	// ProcFS is the host's procfs; default /proc.
	ProcFS string
	// Maps reads mappings; its ProcFS must be the same. Nil: any process that has PyTorch may use it on a GPU.
	Maps *procmaps.Cache
}

// Operator implements operators.DataOperator.
type Operator struct{ cfg Config }

// New returns the operator, to be registered by main.
func New(cfg Config) *Operator {
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	return &Operator{cfg}
}

func (*Operator) Name() string              { return Name }
func (*Operator) Priority() int             { return Priority }
func (*Operator) Init(*params.Params) error { return nil }
func (*Operator) GlobalParams() api.Params  { return nil }

func (*Operator) InstanceParams() api.Params {
	return api.Params{
		{Key: paramTorch, Title: "PyTorch's pool", DefaultValue: auto, PossibleValues: []string{auto, "on", "off"},
			Description: "Trace the blocks of PyTorch's caching allocator, rows of kind tensor, if libc10 is mapped: auto (within a budget, by sampling), on (every block, at any cost) or off"},
		{Key: paramSample, Title: "Sampling of tensors", DefaultValue: auto,
			Description: "Sample about one byte in this many of PyTorch's blocks (such as 512KiB), 0 for every block; auto: as --torch, every block as long as their stacks take up to 1 % of a core, then as many as that allows"},
		{Key: paramFits, Title: "What would fit",
			Description: "Show for each pool (data source pools) how much of its unused memory tensors of this size (such as 64MiB) could use: fits, usable_bytes, and the largest gap between blocks, largest_bytes"},
		{Key: paramWaste, Title: "Waste in PyTorch's pool", TypeHint: api.TypeBool, DefaultValue: "false",
			Description: "Also record what was requested of PyTorch's pool (a second probe for each block): which lines lose how much to rounding (rounding_bytes) and in segments that they keep (fragmented_bytes)"},
	}
}

// InstantiateDataOperator takes part where a gadget with the pools runs.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if _, err := ig.MapSpec(gc, samplingMap); err != nil {
		if errors.Is(err, ig.ErrAbsent) {
			return nil, nil
		}
		return nil, err
	}
	i := &instance{automatic: true, procFS: o.cfg.ProcFS}
	i.quiet.maps = o.cfg.Maps
	// Of a budget for all that probes cost, stacks may take half.
	i.budget.percent = budgetPercent
	if percent := ig.Budget(gc); percent > 0 {
		i.budget.percent = percent / 2
	}
	switch values[paramTorch] {
	case "off":
		ig.SkipLibrary(gc, library)
		skipRequests(gc)
		return nil, nil
	case "on":
		i.automatic = false
	case auto, "":
	default:
		return nil, fmt.Errorf("--%s: want auto, on or off, not %q", paramTorch, values[paramTorch])
	}
	if s := values[paramSample]; s != "" && s != auto {
		bytes, err := units.RAMInBytes(s)
		if err != nil || bytes < 0 || bytes > mostMean {
			return nil, fmt.Errorf("--%s: want auto, 0 or a size of up to 128MiB, not %q", paramSample, s)
		}
		i.automatic = false
		if bytes > 0 {
			i.budget.set(uint64(bytes))
		}
	}
	if err := i.addFields(gc.GetDataSources()); err != nil {
		return nil, err
	}
	var err error
	if i.cuts, err = newCuts(gc); err != nil {
		return nil, err
	}
	if err := i.addFits(gc, values[paramFits]); err != nil {
		return nil, err
	}
	if err := i.addWaste(gc, values[paramWaste]); err != nil {
		return nil, err
	}
	if err := i.addUnused(gc); err != nil {
		return nil, err
	}
	before := beforeAttach{sampled: i.isSampled, errorOf: i.errorOf, attached: map[poolOf]*attached{}}
	if err := before.addRows(gc.GetDataSources()); err != nil {
		return nil, err
	}
	return i, nil
}

type instance struct {
	ig.Failure
	procFS    string
	automatic bool
	sampling  *ebpf.Map
	pools     *ebpf.Map
	cuts      *cuts
	quiet     quiet

	mu     sync.Mutex // guards budget
	budget blockBudget

	stop chan struct{}
	done sync.WaitGroup
}

func (*instance) Name() string { return Name }

// addFields adds the error of sampled rows, and what follows from a pool's totals.
func (i *instance) addFields(sources map[string]datasource.DataSource) error {
	if ds := sources["allocs"]; ds != nil {
		bytes := ds.GetField("inuse_bytes")
		kind := ds.GetField("kind")
		if bytes == nil || kind == nil {
			return fmt.Errorf("data source %s lacks inuse_bytes or kind", ds.Name())
		}
		field, err := ds.AddField("error_bytes", api.Kind_Uint64, datasource.WithAnnotations(map[string]string{
			"description":    "Two standard deviations of inuse_bytes if tensors are sampled; 0: exact",
			"columns.hidden": "true",
		}))
		if err != nil {
			return fmt.Errorf("add field error_bytes to %s: %w", ds.Name(), err)
		}
		if err := ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
			if k, _ := kind.String(d); k == profile.KindTensor {
				n, _ := bytes.Uint64(d)
				return field.PutUint64(d, i.errorOf(n))
			}
			return nil
		}, subscription); err != nil {
			return fmt.Errorf("subscribe to %s: %w", ds.Name(), err)
		}
	}
	ds := sources[poolsSource]
	if ds == nil {
		return nil
	}
	allocated, reserved := ds.GetField("allocated_bytes"), ds.GetField("reserved_bytes")
	if allocated == nil || reserved == nil {
		return fmt.Errorf("data source %s lacks allocated_bytes or reserved_bytes", ds.Name())
	}
	cached, err := ds.AddField("cached_bytes", api.Kind_Uint64, datasource.WithAnnotations(map[string]string{
		"description":    "Unused bytes that the pool has reserved: reserved minus allocated",
		"columns.hidden": "true",
	}))
	if err != nil {
		return fmt.Errorf("add field cached_bytes to %s: %w", ds.Name(), err)
	}
	unused, err := ds.AddField("unused", api.Kind_String, datasource.WithAnnotations(map[string]string{
		"description":       "Unused fraction of the reserved bytes",
		"columns.width":     "7",
		"columns.alignment": "right",
		"columns.fixed":     "true",
	}))
	if err != nil {
		return fmt.Errorf("add field unused to %s: %w", ds.Name(), err)
	}
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		all, _ := reserved.Uint64(d)
		used, _ := allocated.Uint64(d)
		rest := all - min(used, all)
		return errors.Join(cached.PutUint64(d, rest), unused.PutString(d, profile.FormatShare(rest, all)))
	}, subscription)
}

// errorOf is that of a sum of bytes in use.
func (i *instance) errorOf(bytes uint64) uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.budget.errorOf(bytes)
}

// PreStart subscribes to the data source of the operator attach, which exists by now.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	return errors.Join(i.watchBackends(gc), i.quiet.watch(gc))
}

// Start finds the maps, which are there once the programs are loaded.
func (i *instance) Start(gc operators.GadgetContext) error { return i.Started(gc, i.start(gc)) }

func (i *instance) start(gc operators.GadgetContext) error {
	var err error
	if i.sampling, err = ig.Map(gc, samplingMap); err == nil {
		i.pools, err = ig.Map(gc, poolsMap)
	}
	if err != nil {
		return fmt.Errorf("trace PyTorch's pools: %w", err)
	}
	if err := i.cuts.start(gc); err != nil {
		return err
	}
	if !i.automatic {
		return i.put(i.budget.mean)
	}
	i.stop = make(chan struct{})
	i.done.Go(func() { i.follow(gc) })
	return nil
}

// follow adapts the sampling each second.
func (i *instance) follow(gc operators.GadgetContext) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	said, last := false, time.Now()
	for {
		select {
		case <-i.stop:
			return
		case <-ticker.C:
		}
		now, err := i.read()
		if err != nil {
			gc.Logger().Warnf("torch: %v; sampling stays as it is", err)
			return
		}
		at := time.Now()
		i.mu.Lock()
		before := i.budget.mean
		mean := i.budget.see(now, at.Sub(last).Seconds())
		i.mu.Unlock()
		last = at
		if mean == before {
			continue
		}
		if err := i.put(mean); err != nil {
			gc.Logger().Warnf("torch: %v; sampling stays as it is", err)
			return
		}
		if !said && mean > 0 {
			said = true
			gc.Logger().Infof("torch: the stacks of all blocks would take more than %g %% of a core: from here on tensors are sampled, their sums are estimates (error_bytes)", i.budget.percent)
		}
	}
}

// read adds up what all pools allocated.
func (i *instance) read() (sum totals, err error) {
	var key, value []byte
	entries := i.pools.Iterate()
	for entries.Next(&key, &value) {
		p, err := decodePool(value)
		if err != nil {
			return sum, err
		}
		sum.bytes += p.bytes
		sum.blocks += p.blocks
		sum.followed += p.followed
		sum.followedNS += p.followedNS
	}
	// An entry that goes while it is read may end the walk early: the sums are
	// then smaller than those before, which the budget passes over.
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return sum, fmt.Errorf("read %s: %w", poolsMap, err)
	}
	return sum, nil
}

func (i *instance) put(mean uint64) error {
	if err := i.sampling.Put(uint32(0), mean); err != nil {
		return fmt.Errorf("set the mean of sampling to %s bytes: %w", strconv.FormatUint(mean, 10), err)
	}
	return nil
}

// Stop ends the adaptation.
func (i *instance) Stop(operators.GadgetContext) error {
	if i.stop != nil {
		close(i.stop)
		i.stop = nil
	}
	i.done.Wait()
	return nil
}

// Close implements operators.DataOperatorInstance.
func (i *instance) Close(gc operators.GadgetContext) error { return i.Stop(gc) }

// The part of struct torch_pool (bpf/torch/torch.h) that the budget goes by.
const (
	poolBytes          = 18 * 8
	poolOutBytes       = 4 * 8
	poolOutBlocks      = 5 * 8
	poolFollowedBlocks = 12 * 8
	poolFollowedNS     = 13 * 8
)

func decodePool(b []byte) (totals, error) {
	if len(b) != poolBytes {
		return totals{}, fmt.Errorf("a pool of %d bytes, not %d: the gadget is of another version", len(b), poolBytes)
	}
	return totals{
		bytes: binary.NativeEndian.Uint64(b[poolOutBytes:]), blocks: binary.NativeEndian.Uint64(b[poolOutBlocks:]),
		followed: binary.NativeEndian.Uint64(b[poolFollowedBlocks:]), followedNS: binary.NativeEndian.Uint64(b[poolFollowedNS:]),
	}, nil
}
