// SPDX-License-Identifier: Apache-2.0

// Package runner puts ig-gpu's own behaviour around Inspektor Gadget's local
// runtime: it checks the machine first, runs our gadgets from the images inside
// the binary, and adds to an error what the user can do about it.
package runner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/images"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/capabilities"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/live"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/objects"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/table"
)

// ErrNoContainers says that the run requested containers where none can be
// watched.
var ErrNoContainers = errors.New("containers cannot be watched on this machine" +
	" (no container runtime, a kernel without kprobes, or a security module, such as SELinux," +
	" that refuses permission events of fanotify): use --host to trace all processes")

// ErrUnknownGadget says that a bare name is neither one of our gadgets nor one
// that a registry could give.
var ErrUnknownGadget = errors.New("unknown gadget")

// Runtime is an Inspektor Gadget runtime that knows the embedded images.
type Runtime struct {
	runtime.Runtime
	images  images.Set
	machine Machine
	help    bool
	serves  bool
	columns string            // what GetGadgetInfo gave as the default of columnsParam
	output  string            // and of outputParam
	modes   map[string]string // and of outputParam, by data source
}

// columnsParam selects the columns. Its default is found before the gadget's own
// parameters are read, and is then handed to the run as if the user had chosen it, which
// would leave out columns that come with a parameter, such as --older-than.
const columnsParam = "operator.cli.fields"

// outputParam selects the data sources that are shown as tables.
const outputParam = "operator.cli.output"

// Machine is checked before the runtime does anything; see package machine.
type Machine interface {
	// Check decides whether the machine is fit; its error is returned as it is.
	Check() error
	// CannotSleep asks for the gadgets' variants for old kernels.
	CannotSleep() bool
	// NeedsSleep is the error for a gadget that has none.
	NeedsSleep(gadget string) *machine.Requirement
}

// New wraps inner.
func New(inner runtime.Runtime, set images.Set, m Machine) *Runtime {
	return &Runtime{Runtime: inner, images: set, machine: m}
}

// OnlyHelp makes gadgets be described and not run, which takes neither root nor a fit kernel.
func (r *Runtime) OnlyHelp() { r.help = true }

// Serve keeps all rights of root, for gadgets of any image that clients run.
func (r *Runtime) Serve() { r.serves = true }

// Check decides whether the machine is fit.
func (r *Runtime) Check() error { return r.machine.Check() }

// Init checks the machine, then prepares the inner runtime.
func (r *Runtime) Init(global *params.Params) error {
	if r.help {
		return nil
	}
	if err := r.machine.Check(); err != nil {
		return err
	}
	return r.Runtime.Init(global)
}

// GetGadgetInfo reads what a gadget offers, from the embedded image if the name
// is one of ours.
func (r *Runtime) GetGadgetInfo(gadget runtime.GadgetContext, global *params.Params, values api.ParamValues) (*api.GadgetInfo, error) {
	if err := r.useEmbedded(gadget); err != nil {
		return nil, err
	}
	info, err := r.Runtime.GetGadgetInfo(gadget, global, values)
	for _, p := range info.GetParams() {
		if p.Prefix+p.Key == columnsParam {
			r.columns = sorted(p.DefaultValue)
		}
		if p.Prefix+p.Key == outputParam {
			r.modes, r.output = modesOf(p.DefaultValue), p.DefaultValue
		}
	}
	return info, r.explain(gadget, err)
}

// RunGadget runs a gadget until its context, or a signal that would kill the program, ends it. A server is killed.
func (r *Runtime) RunGadget(gadget runtime.GadgetContext, global *params.Params, values api.ParamValues) error {
	if !r.serves {
		defer endBySignal(gadget, unix.Stdout, unix.Stderr)()
	}
	if err := r.useEmbedded(gadget); err != nil {
		return err
	}
	if r.images.HasVariant(gadget.ImageName()) && r.machine.CannotSleep() {
		gadget.Logger().Infof("this kernel's probes cannot wait for a page that is not in memory: running %s for Linux 5.10; "+
			"stacks that lack frames for it are counted as python_unreadable", gadget.ImageName())
	}
	if r.columns != "" && sorted(values[columnsParam]) == r.columns {
		delete(values, columnsParam)
	}
	requested := table.Requested{Fields: values[columnsParam], Output: values[outputParam]}
	if requested.Output == r.output {
		requested.Output = ""
	}
	if requested != (table.Requested{}) {
		gadget.SetVar(table.VarRequested, requested)
	}
	if values[outputParam] != "" {
		cli, asJSON := objects.Split(values[outputParam], r.modes)
		values[outputParam] = cli
		gadget.SetVar(objects.Var, asJSON)
		if r.images.Has(gadget.ImageName()) && !isChosen(values) {
			if tables, ok := takeTables(gadget.ImageName(), values); ok {
				gadget.SetVar(live.VarTables, tables)
			}
		}
		gadget.SetVar(table.VarUnread, unread(values[outputParam], asJSON))
	}
	if r.images.Has(gadget.ImageName()) && !r.serves {
		if err := capabilities.Keep(capabilities.Tracing...); err != nil {
			gadget.Logger().Warnf("%v: ig-gpu keeps all that it was started with", err)
		}
	}
	r.offerBeside(gadget, global, values)
	return r.explain(gadget, r.Runtime.RunGadget(gadget, global, values))
}

// modesOf reads the default of outputParam, "allocs:columns,…"; nil where it names no data
// sources, since there is only one.
func modesOf(value string) map[string]string {
	var modes map[string]string
	for part := range strings.SplitSeq(value, ",") {
		if source, mode, ok := strings.Cut(part, ":"); ok {
			if modes == nil {
				modes = map[string]string{}
			}
			modes[source] = mode
		}
	}
	return modes
}

// sorted puts the data sources of columnsParam into an order: they have a new one each
// time that a default is made.
func sorted(columns string) string {
	sources := strings.Split(columns, ";")
	slices.Sort(sources)
	return strings.Join(sources, ";")
}

// useEmbedded makes the context read the embedded image instead of a registry.
// Inspektor Gadget then neither pulls nor verifies a signature: the image is
// part of the program that the user has chosen to run as root.
func (r *Runtime) useEmbedded(gadget runtime.GadgetContext) error {
	if !r.images.Has(gadget.ImageName()) {
		return nil
	}
	context, ok := gadget.(*gadgetcontext.GadgetContext)
	if !ok {
		return fmt.Errorf("run embedded gadget %s: unknown kind of context %T", gadget.ImageName(), gadget)
	}
	open := r.images.Open
	if !r.help && r.machine.CannotSleep() {
		if !r.images.HasVariant(gadget.ImageName()) {
			return r.machine.NeedsSleep(gadget.ImageName())
		}
		open = r.images.OpenVariant
	}
	target, err := open(gadget.Context(), gadget.ImageName())
	if err != nil {
		return err
	}
	gadgetcontext.WithOrasReadonlyTarget(target)(context)
	return nil
}

// explain adds to the errors that users meet first what to do about them.
// Inspektor Gadget has no error values for these, only texts; where a text
// changes, the plain error is shown.
func (r *Runtime) explain(gadget runtime.GadgetContext, err error) error {
	if err == nil {
		return nil
	}
	if strings.HasSuffix(err.Error(), "container-collection isn't available") {
		return ErrNoContainers
	}
	gadget.Logger().Debugf("run %s: %v", gadget.ImageName(), err)
	name := gadget.ImageName()
	if r.images.Has(name) || strings.ContainsAny(name, "/:@") {
		return err
	}
	names := "none: run make build"
	if all := r.images.Names(); len(all) > 0 {
		names = strings.Join(all, ", ")
	}
	return fmt.Errorf("%w %q: not inside this binary (%s), and no registry gave it: %w",
		ErrUnknownGadget, name, names, rootCause(err))
}

// rootCause leaves out the many steps that lead to a failed pull; the whole
// chain is in the debug log.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
