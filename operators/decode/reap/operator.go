// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/cpus"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// interval between passes: a dead process's pointers may wait.
	interval = 5 * time.Second
	// grace covers several readings, of which two may be 5 s apart (operators/decode/readings).
	grace = 10 * time.Second
	// forget is the time after which a gadget instance of a daemon, which has no end,
	// removes the rows of an ended process: by then clients have read and exporters
	// sent them. A run in a terminal keeps them while there is room, unless paramForget says otherwise.
	forget = time.Minute

	paramForget = "forget-exited"
)

// Names of the maps in the gadgets' eBPF objects.
const (
	processesMap = "processes_by_id"
	spansMap     = "rows_by_span"
	requestsMap  = "requests_by_row"
)

var (
	stateMaps = []string{"live_by_pointer", "handles_by_number", "mappings_by_address",
		"instances_by_number", "instance_by_context", // for old kernels only
		"streams_by_handle", "nccl_processes", requestsMap, "owner_by_handle", "owner_numbers",
		"device_by_context", "primary_by_device"}
	rowMaps = []string{"rows_by_stack", "unknown_rows", "totals_by_call", "windows_by_row", "windows_by_total",
		"communicators_by_handle", "operations_by_size", "operations_by_peer", "sums_by_communicator", "owners_by_number", "torch_pools"}
)

// FindMaps returns the maps of a gadget with such a function.
func FindMaps(find func(name string) *ebpf.Map) Maps {
	all := func(names []string) (maps []*ebpf.Map) {
		for _, name := range names {
			if m := find(name); m != nil {
				maps = append(maps, m)
			}
		}
		return maps
	}
	maps := Maps{
		Spans: find(spansMap), Idle: IdleCounts, Requests: find(requestsMap),
		Processes: find(processesMap), State: all(stateMaps), Rows: all(rowMaps),
		Stacks: find("stacks_by_id"), Symbols: find("symbols_by_id"), Places: find("python_lines_by_place"),
		Kernels: find("names_by_function"), Handles: find("function_by_handle"),
		Passes: find("backward_passes"), Quotas: FindQuotas(find),
	}
	if find(stateMaps[0]) != nil { // rows hold memory
		maps.Idle = IdleAllocations
	} else if find("communicators_by_handle") == nil {
		maps.Counting, maps.Windows = find(rowMaps[0]), find("windows_by_row")
	}
	return maps
}

// Operator runs a Reaper for a gadget that has the maps.
type Operator struct{}

// NewOperator returns the data operator.
func NewOperator() *Operator { return &Operator{} }

// Name implements operators.DataOperator.
func (*Operator) Name() string { return "reap" }

// Init implements operators.DataOperator.
func (*Operator) Init(*params.Params) error { return nil }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return nil }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params {
	return api.Params{{
		Key:         paramForget,
		Title:       "Forget exited processes",
		Description: "Remove the rows of a process so long after its exit, for runs of days; without it they stay while there is room (a daemon's: 1m)",
		TypeHint:    api.TypeDuration,
	}}
}

// Priority is after the operators that read the maps.
func (*Operator) Priority() int { return 100 }

// InstantiateDataOperator skips gadgets without processes_by_id. It is the last one to set the size of maps.
func (*Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if _, ok := gc.GetVar(operators.MapSpecPrefix + processesMap); !ok {
		return nil, nil
	}
	if err := enlarge(gc); err != nil {
		gc.Logger().Warnf("on machines with many processors, tables may lose what is in use: %v", err)
	}
	i := &instance{}
	if gc.ID() != "" && gc.IsRemoteCall() {
		i.forget = forget
	}
	if text := values[paramForget]; text != "" {
		var err error
		if i.forget, err = duration.Parse(text); err != nil || i.forget < grace {
			return nil, fmt.Errorf("--%s: want a duration of at least %v, not %q", paramForget, grace, text)
		}
	}
	return i, nil
}

func enlarge(gc operators.GadgetContext) error {
	online, err := cpus.Online()
	if err != nil {
		return err
	}
	return ig.EnlargeLRU(gc, len(online))
}

type instance struct {
	forget time.Duration
	cancel context.CancelFunc
	wait   sync.WaitGroup
	log    throttle.Throttle
}

func (*instance) Name() string { return "reap" }

func (i *instance) Start(gc operators.GadgetContext) error {
	find := func(name string) *ebpf.Map {
		v, _ := gc.GetVar(operators.MapPrefix + name)
		m, _ := v.(*ebpf.Map)
		return m
	}
	maps := FindMaps(find)
	if maps.Processes == nil {
		return nil
	}
	maps.Forget = i.forget
	reaper := New(maps, grace)

	ctx, cancel := context.WithCancel(gc.Context())
	i.cancel = cancel
	i.wait.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			result, err := reaper.Pass(ig.SinceBoot())
			if err != nil {
				gc.Logger().Warnf("clean up after exited processes: %v", err)
			} else if result != (Result{}) {
				gc.Logger().Debugf("cleaned up after exited processes: %+v", result)
			}
			refused, err := reaper.Refused(result)
			if err != nil {
				gc.Logger().Warnf("correct what containers have in the tables: %v", err)
			}
			i.warn(gc, refused)
		}
	})
	return nil
}

func (i *instance) Stop(operators.GadgetContext) error {
	if i.cancel != nil {
		i.cancel()
		i.wait.Wait()
	}
	return nil
}

func (i *instance) Close(gc operators.GadgetContext) error { return i.Stop(gc) }

// warn reports who was refused: the drops have the sums of all.
func (i *instance) warn(gc operators.GadgetContext, refused []Refusal) {
	if len(refused) == 0 {
		return
	}
	if _, ok := i.log.Pass(time.Now()); !ok {
		return
	}
	worst := slices.MaxFunc(refused, func(a, b Refusal) int { return cmp.Compare(a.sum(), b.sum()) })
	others := ""
	if len(refused) > 1 {
		others = fmt.Sprintf(" (and %d other containers)", len(refused)-1)
	}
	gc.Logger().Warnf("the container of process %d%s has taken its share of the tables: no room for %s; other containers keep theirs",
		worst.PID, others, worst.text())
}
