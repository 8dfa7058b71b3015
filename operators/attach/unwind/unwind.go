// SPDX-License-Identifier: Apache-2.0

// Package unwind is the Inspektor Gadget operator behind --native-stacks and --unwind-memory: native stacks are
// walked by the unwind information of the libraries, and not by frame pointers, which most
// libraries of a GPU program are built without. It switches the walk on (bpf/stack/unwind.h) and
// loads the rules that it asks for (internal/tracer/unwinder).
package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/unwinder"
)

const (
	// Name of the operator.
	Name = "unwind"
	// Priority is after the gadget's instantiation (oci, -1000), before the probes are attached
	// (attach, -100), so that the first calls find someone who loads rules.
	Priority = -101

	param         = "unwind-memory"
	defaultMemory = "64MiB"
	maxMemory     = 4 << 30

	paramStacks = "native-stacks"
	// Values of --native-stacks.
	stacksAuto     = "auto"
	stacksAll      = "all"
	stacksPointers = "pointers"
)

// autoConstant names the constant of a gadget whose stacks are not those of calls: the mode of auto.
const autoConstant = "native_rules_auto"

// modes has the value of the gadget's constant for each of --native-stacks.
var modes = map[string]uint8{
	stacksAuto: unwinder.WithoutPython, stacksAll: unwinder.All, stacksPointers: unwinder.Off,
}

// Config of the operator.
type Config struct {
	// ProcFS is the host's procfs, that of Processes, too.
	ProcFS    string
	Processes *procmaps.Cache
}

// Operator implements operators.DataOperator.
type Operator struct {
	cfg Config

	mu      sync.Mutex
	running map[*unwinder.Unwinder]string // → its gadget
}

// New returns the operator, to be registered by main.
func New(cfg Config) *Operator {
	return &Operator{cfg: cfg, running: map[*unwinder.Unwinder]string{}}
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
		{Key: paramStacks, Title: "Native stacks", TypeHint: api.TypeString, DefaultValue: stacksAuto,
			Description: "Native frames by unwind information: auto: of calls without Python, while those from Python have the driver's function and its caller; all: of all calls; pointers: none"},
		{Key: param, Title: "Memory for unwinding", TypeHint: api.TypeString, DefaultValue: defaultMemory,
			Description: "Most kernel memory that unwind information of native code may take; 0: as --native-stacks pointers"},
	}
}

// parseMemory reads a number of bytes with a binary unit; 0 switches the walk off.
func parseMemory(text string) (int64, error) {
	digits, shift := strings.TrimSuffix(text, "B"), 0
	for unit, bits := range map[string]int{"Ki": 10, "Mi": 20, "Gi": 30} {
		if rest, ok := strings.CutSuffix(digits, unit); ok {
			digits, shift = rest, bits
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 33)
	if err != nil || n < 0 || (n != 0 && (n<<shift < unwinder.MinMemory || n<<shift > maxMemory)) {
		return 0, fmt.Errorf("want 0, or a size from 1MiB to 4GiB, not %q", text)
	}
	return n << shift, nil
}

// InstantiateDataOperator stays out of runs of gadgets without native stacks, and of those on the
// client's side of a connection, where there are no programs. Switched off it stays in, and does
// nothing: Inspektor Gadget knows the flags of those operators only that are in a run.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	text := values[param]
	if text == "" {
		text = defaultMemory
	}
	memory, err := parseMemory(text)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", param, err)
	}
	stacks := cmp.Or(values[paramStacks], stacksAuto)
	mode, ok := modes[stacks]
	if !ok {
		return nil, fmt.Errorf("--%s: want %s, %s or %s, not %q", paramStacks, stacksAuto, stacksAll, stacksPointers, stacks)
	}
	if gc.IsClient() {
		return nil, nil
	}
	if auto, ok := gc.GetVar(autoConstant); ok && stacks == stacksAuto {
		if mode, ok = auto.(uint8); !ok {
			return nil, fmt.Errorf("constant %s is a %T", autoConstant, auto)
		}
	}
	specs := map[string]*ebpf.MapSpec{}
	for _, name := range []string{unwinder.PagesMap, unwinder.AskedMap, unwinder.MissesMap} {
		specs[name], err = ig.MapSpec(gc, name)
		if errors.Is(err, ig.ErrAbsent) {
			return nil, nil // a gadget without native stacks, or compiled for Linux before 6.0
		}
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", param, err)
		}
	}
	if walks, err := ig.MapSpec(gc, unwinder.WalksMap); err == nil {
		specs[unwinder.WalksMap] = walks
	}
	if memory == 0 || mode == unwinder.Off {
		return &instance{}, nil
	}
	if err := ig.SetConstant(gc, unwinder.OnConstant, mode); err != nil {
		return nil, fmt.Errorf("--%s: configure the gadget: %w", param, err)
	}
	if err := ig.SetConstant(gc, unwinder.PageShiftConstant, ig.PageShift()); err != nil {
		return nil, fmt.Errorf("--%s: configure the gadget: %w", param, err)
	}
	unwinder.Enlarge(specs, memory)
	return &instance{op: o}, nil
}

// instance is one run of a gadget.
type instance struct {
	op       *Operator // nil: switched off
	unwinder *unwinder.Unwinder

	mu  sync.Mutex
	err error // of Start, until PostStop has returned it
}

// Name implements operators.DataOperatorInstance.
func (*instance) Name() string { return Name }

// Start loads rules from now on. It does not fail: Inspektor Gadget would wait for its own readers
// for ever. The run ends instead, and PostStop returns why.
func (i *instance) Start(gc operators.GadgetContext) error {
	if i.op == nil {
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
	cfg := unwinder.Config{ProcFS: i.op.cfg.ProcFS, Processes: i.op.cfg.Processes}
	for name, m := range map[string]**ebpf.Map{
		unwinder.PagesMap: &cfg.Pages, unwinder.AskedMap: &cfg.Asked, unwinder.MissesMap: &cfg.Misses,
	} {
		var err error
		if *m, err = ig.Map(gc, name); err != nil {
			return err
		}
	}
	u, err := unwinder.New(cfg)
	if err != nil {
		return err
	}
	if err := u.Start(gc.Context()); err != nil {
		return err
	}
	i.unwinder = u
	i.op.mu.Lock()
	defer i.op.mu.Unlock()
	i.op.running[u] = ig.GadgetName(gc.ImageName())
	return nil
}

// Stop ends the loading.
func (i *instance) Stop(gc operators.GadgetContext) error {
	if i.unwinder != nil {
		i.op.mu.Lock()
		delete(i.op.running, i.unwinder)
		i.op.mu.Unlock()
		i.unwinder.Stop()
		s := i.unwinder.Stats()
		gc.Logger().Debugf("%s: %d pages of %d files, %d misses, %d evicted, %d not readable",
			Name, s.Pages, s.Files, s.Misses, s.Evicted, s.Failed)
		i.unwinder = nil
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
