// SPDX-License-Identifier: Apache-2.0

// Package ig is the only place that uses undocumented parts of Inspektor Gadget: the
// names of gadget context variables ("map/…", "mapspec/…", "config", "ebpfInstance")
// and the types behind them. Tested with v0.55.0; its test fails
// when a release changes them.
package ig

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadgets"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

// VarInstance names the variable with the gadget's eBPF instance.
const VarInstance = "ebpfInstance"

const (
	varConfig      = "config"
	stockEnter     = "enter_" // STOCK_PROBES of bpf/call/probes.h
	stockExit      = "exit_"
	programSkipped = "gadget_program_disabled" // documented: docs/gadget-devel/program-types.md
)

// ErrAbsent means that the gadget does not have the requested map, program or variable.
var ErrAbsent = errors.New("gadget does not have it")

// Context is the part of operators.GadgetContext that this package uses.
type Context interface {
	GetVar(string) (any, bool)
	SetVar(string, any)
}

// Map returns a map of the running gadget: from an operator's Start on, for
// operators with a priority above -1000. The gadget owns it.
func Map(gc Context, name string) (*ebpf.Map, error) {
	v, ok := gc.GetVar(operators.MapPrefix + name)
	if !ok {
		return nil, fmt.Errorf("map %s: %w", name, ErrAbsent)
	}
	m, ok := v.(*ebpf.Map)
	if !ok || m == nil {
		return nil, fmt.Errorf("map %s: unexpected type %T", name, v)
	}
	return m, nil
}

// MapSpec returns the description of a map of the gadget, from Instantiate on.
func MapSpec(gc Context, name string) (*ebpf.MapSpec, error) {
	v, ok := gc.GetVar(operators.MapSpecPrefix + name)
	if !ok {
		return nil, fmt.Errorf("map %s: %w", name, ErrAbsent)
	}
	m, ok := v.(*ebpf.MapSpec)
	if !ok || m == nil {
		return nil, fmt.Errorf("map %s: unexpected type %T", name, v)
	}
	return m, nil
}

// Program returns the program in slot 0 of a program array (ATTACH_PROGRAM in
// bpf/call/attach_point.h). The caller closes it. ErrAbsent when the gadget has no
// such array.
func Program(gc Context, mapName string) (*ebpf.Program, error) {
	m, err := Map(gc, mapName)
	if err != nil {
		return nil, err
	}
	var p *ebpf.Program
	if err := m.Lookup(uint32(0), &p); err != nil {
		return nil, fmt.Errorf("look up program in %s: %w", mapName, err)
	}
	return p, nil
}

// Programs returns all programs of a program array, by the slots that were set at compile
// time. The caller closes them. ErrAbsent when the gadget has no such array.
func Programs(gc Context, mapName string) (map[uint32]*ebpf.Program, error) {
	m, err := Map(gc, mapName)
	if err != nil {
		return nil, err
	}
	programs := map[uint32]*ebpf.Program{}
	for slot := range m.MaxEntries() {
		var p *ebpf.Program
		if err := m.Lookup(slot, &p); err != nil {
			for _, other := range programs {
				other.Close()
			}
			return nil, fmt.Errorf("look up program %d in %s: %w", slot, mapName, err)
		}
		programs[slot] = p
	}
	return programs, nil
}

// DisableStock keeps ig from attaching the enter_SYMBOL and exit_SYMBOL programs of the
// points itself. Call it in Instantiate: ig reads the setting when it starts.
func DisableStock(gc Context, points []attachpoint.Point) error {
	config, err := configOf(gc)
	if err != nil {
		return err
	}
	for _, p := range points {
		for _, prefix := range []string{stockEnter, stockExit} {
			config.Set("programs."+prefix+p.Symbol+".attach_to", programSkipped)
		}
	}
	return nil
}

// setter is the part of ig's *viper.Viper that this package uses.
type setter interface{ Set(string, any) }

func configOf(gc Context) (setter, error) {
	v, ok := gc.GetVar(varConfig)
	if !ok {
		return nil, fmt.Errorf("gadget configuration: %w", ErrAbsent)
	}
	config, ok := v.(setter)
	if !ok {
		return nil, fmt.Errorf("gadget configuration: unexpected type %T", v)
	}
	return config, nil
}

// SetAttachMode sets which programs will be attached, so that the kernel need not verify
// the others when ig loads them. Call it in Instantiate. Gadgets without the constant
// load all programs.
func SetAttachMode(gc Context, mode uint32) { gc.SetVar("attach_mode", mode) }

// AnnotationInstance is the annotation, in a daemon's description of a gadget instance, that
// distinguishes one run of it from the next: if it differs, counters have restarted at zero. Our daemons
// set it.
const AnnotationInstance = "gpu-gadgets.instance.run"

// varSkipped holds the libraries whose attach points are skipped.
const varSkipped = "gpu-gadgets.attach.skipped"

// varBudget is a variable of ours.
const varBudget = "gpu-gadgets.budget.percent"

// SetBudget sets the limit for the probes' overhead, in percent of each thread's processor time.
func SetBudget(gc Context, percent float64) { gc.SetVar(varBudget, percent) }

// Budget returns what SetBudget has set; 0: there is no budget. From Instantiate on, for operators
// after attach/budget.
func Budget(gc Context) float64 {
	v, _ := gc.GetVar(varBudget)
	percent, _ := v.(float64)
	return percent
}

// varRetried holds the drops of what was read again.
const varRetried = "gpu-gadgets.drops.retried"

// Retried leaves n of the drops with a reason out of the report at the end: they are of records that were
// read again.
func Retried(gc Context, reason string, n uint64) {
	before := retried(gc)
	counts := maps.Clone(before)
	if counts == nil {
		counts = map[string]uint64{}
	}
	counts[reason] += n
	gc.SetVar(varRetried, counts)
}

func retried(gc Context) map[string]uint64 {
	v, _ := gc.GetVar(varRetried)
	counts, _ := v.(map[string]uint64)
	return counts
}

// Dropped is a count of drops without those that Retried was called for.
func Dropped(gc Context, reason string, n uint64) uint64 { return n - min(n, retried(gc)[reason]) }

// SkipLibrary removes the functions of a library from the table of attach points. Call it
// in Instantiate, in an operator with a priority below that of attach.
func SkipLibrary(gc Context, library string) {
	skipped, _ := gc.GetVar(varSkipped)
	names, _ := skipped.([]string)
	gc.SetVar(varSkipped, append(names, library))
}

// isSkipped reports whether SkipLibrary was called for the library.
func isSkipped(gc Context, library string) bool {
	skipped, _ := gc.GetVar(varSkipped)
	names, _ := skipped.([]string)
	return slices.Contains(names, library)
}

// TagMountNS on a uint64 field makes the container managers add the fields of
// the container with that mount namespace.
const TagMountNS = "type:gadget_mntns_id"

// FiltersContainers reports whether a container manager restricts this run to
// the containers that the user selected. Known from Start on.
func FiltersContainers(gc Context) bool {
	v, _ := gc.GetVar(gadgets.FilterByMntNsName)
	on, _ := v.(bool)
	return on
}

// Configure sets a value of the gadget's metadata (gadget.yaml), e.g.
// "programs.P.sampler.frequency". Call it in Instantiate: ig reads most of it when it
// starts.
func Configure(gc Context, key string, value any) error {
	config, err := configOf(gc)
	if err != nil {
		return err
	}
	config.Set(key, value)
	return nil
}

// Skip keeps ig from attaching a program.
func Skip(gc Context, program string) error {
	return Configure(gc, "programs."+program+".attach_to", programSkipped)
}

// SetConstant sets a read-only variable of the eBPF object before the object is loaded.
// The object has it twice: as `const volatile T NAME`, which is set, and as `const
// volatile T gadget_var_NAME`, by which ig knows that it may be set. Call it in
// Instantiate, in operators with a priority above -1000.
func SetConstant(gc Context, name string, value any) error {
	old, ok := gc.GetVar(name)
	if !ok {
		return fmt.Errorf("constant %s: %w", name, ErrAbsent)
	}
	if reflect.TypeOf(old) != reflect.TypeOf(value) {
		return fmt.Errorf("constant %s: is a %T, not a %T", name, old, value)
	}
	gc.SetVar(name, value)
	return nil
}

// PageShift is the binary logarithm of the size of the kernel's pages in bytes, for constants of gadgets.
func PageShift() uint8 { return uint8(bits.TrailingZeros(uint(os.Getpagesize()))) }
