// SPDX-License-Identifier: Apache-2.0

// Package engine runs gadgets for commands that are no `run`: with the operators that
// `run` has, in this process. A command names the gadget, the processes and the
// flags; Command returns them as a command line which a user can type.
package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	apihelpers "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api-helpers"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	clioperator "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cli"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
)

// Runtime runs gadgets; runner.Runtime in the program.
type Runtime interface {
	Init(*params.Params) error
	GlobalParamDescs() params.ParamDescs
	RunGadget(runtime.GadgetContext, *params.Params, api.ParamValues) error
}

// Engine runs gadgets, one after another or several at once.
type Engine struct {
	runtime Runtime
	prepare func() error // once
}

// New prepares nothing yet: commands that run no gadget need no root.
func New(rt Runtime) *Engine {
	return &Engine{runtime: rt, prepare: sync.OnceValue(func() error {
		if err := rt.Init(rt.GlobalParamDescs().ToParams()); err != nil {
			return err
		}
		for name, operator := range operators.GetDataOperators() {
			if err := operator.Init(apihelpers.ToParamDescs(operator.GlobalParams()).ToParams()); err != nil {
				return fmt.Errorf("prepare operator %s: %w", name, err)
			}
		}
		return nil
	})}
}

// Flag is a flag of `run`: the operator that has it, its name and its value.
type Flag struct {
	Operator, Name, Value string
	// Typed is the flag of the user's command line that it comes from, such as -o, for errors.
	Typed string
}

// Run is one run of a gadget.
type Run struct {
	// Gadget is its name, such as cuda_alloc.
	Gadget string
	// PIDs are the processes to trace, with their descendants; nil: all.
	PIDs []uint32
	// For is how long; 0: until the context ends, or the gadget does.
	For time.Duration
	// Flags are further flags.
	Flags []Flag
	// Print shows rows on standard output as `run` does, in the form of -o ("columns",
	// "json", …; "" is the gadget's own). Without it nothing is printed.
	Print  bool
	Output string
	// Operators take part beside those of `run`, such as one that reads the rows:
	// see simple.New of Inspektor Gadget.
	Operators []operators.DataOperator
	// Vars are variables of the gadget's context.
	Vars map[string]any
	// Logger is where warnings go; nil: the program's.
	Logger logger.Logger
}

// pidOperator has the flag --pid of a gadget: py_stack's own, or that which attaches.
func (r Run) pidOperator() string {
	if r.Gadget == "py_stack" {
		return "pystack"
	}
	return "attach"
}

func (r Run) pids() string {
	texts := make([]string, len(r.PIDs))
	for n, pid := range r.PIDs {
		texts[n] = strconv.FormatUint(uint64(pid), 10)
	}
	return strings.Join(texts, ",")
}

// values are the flags as Inspektor Gadget's parameters. Processes are searched for on the
// whole machine: who names one by its id, or wants all, means that.
func (r Run) values() api.ParamValues {
	values := api.ParamValues{"operator.LocalManager.host": "true"}
	if len(r.PIDs) > 0 {
		values["operator."+r.pidOperator()+".pid"] = r.pids()
	}
	for _, f := range r.Flags {
		values["operator."+f.Operator+"."+f.Name] = f.Value
	}
	if r.Print && r.Output != "" {
		values["operator.cli.output"] = r.Output
	}
	return values
}

// Command is the command line that does the same.
func (r Run) Command() string {
	words := []string{"ig-gpu", "run", r.Gadget}
	if len(r.PIDs) > 0 {
		words = append(words, "--pid", r.pids())
	} else {
		words = append(words, "--host")
	}
	for _, f := range r.Flags {
		if f.Value == "true" {
			words = append(words, "--"+f.Name)
		} else {
			words = append(words, "--"+f.Name, f.Value)
		}
	}
	if r.For > 0 {
		words = append(words, "--timeout", r.For.String())
	}
	if r.Print && r.Output != "" {
		words = append(words, "-o", r.Output)
	}
	return strings.Join(words, " ")
}

// Run returns when the run has ended and its files are written.
func (e *Engine) Run(ctx context.Context, r Run) error {
	if err := e.prepare(); err != nil {
		return err
	}
	ops := slices.Collect(maps.Values(operators.GetDataOperators()))
	if r.Print {
		ops = append(ops, clioperator.CLIOperator)
	}
	ops = append(ops, r.Operators...)
	options := []gadgetcontext.Option{gadgetcontext.WithDataOperators(ops...), gadgetcontext.WithTimeout(r.For)}
	if r.Logger != nil {
		options = append(options, gadgetcontext.WithLogger(r.Logger))
	}
	gc := gadgetcontext.New(ctx, r.Gadget, options...)
	for name, value := range r.Vars {
		gc.SetVar(name, value)
	}
	err := e.runtime.RunGadget(gc, nil, r.values())
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		return interrupted{gadget: r.Gadget}
	}
	return fmt.Errorf("run %s: %w", r.Gadget, err)
}

// interrupted is a run that Ctrl-C, a signal or its caller ended while it was being set up. It is
// context.Canceled, whatever the step that noticed made of it.
type interrupted struct{ gadget string }

func (i interrupted) Error() string {
	return i.gadget + " was interrupted before it traced anything: nothing is recorded"
}

func (i interrupted) Unwrap() error { return context.Canceled }
