// SPDX-License-Identifier: Apache-2.0

// Package live is the Inspektor Gadget operator that shows a gadget's rows to a person:
// at a terminal as a screen that is repainted in place, with the keys of `ig-gpu top` and
// with messages that stay; elsewhere as one table when the run ends, and verdicts and
// refusals as they come. Package internal/format/top says what is shown.
package live

import (
	"fmt"
	"strings"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/sink"
)

const (
	// Name of the operator.
	Name = "live"
	// Priority is after sink, whose marks its keys set. Inspektor Gadget stops it before
	// those that sum up, whose lines then stand below the table.
	Priority = 9992
	// subscription is after the filter (9000) and before the limiter (9600): totals are of
	// all rows that the user requested.
	subscription = 9100

	paramBy = "by"

	// VarTables is the variable of the gadget's context that has the Tables to show. It
	// is set where the command line asks for tables; else the operator stays out.
	VarTables = "gpu-gadgets.tables"
	// VarScreen is the one that has the *Screen which several runs share.
	VarScreen = "gpu-gadgets.screen"
)

// Tables are those that the command line selects.
type Tables struct {
	// Sources are the names of data sources; nil: all that the operator knows.
	Sources map[string]bool
	// Limit is the number of rows; 0: all.
	Limit int
}

// Shown are the data sources that the operator can show instead of Inspektor Gadget.
func Shown() []string {
	return []string{"allocs", "calls", "samples", "collectives", "hangs", "ooms", "attachments", "drops", "pools"}
}

// Config of the operator.
type Config struct {
	// Console is where the user sits; nil: nothing is shown.
	Console Console
	// Tenant is whom a process belongs to; nil: all belong to one.
	Tenant func(pid uint32) procmaps.Tenant
}

// Operator is to be registered once per process.
type Operator struct{ cfg Config }

// New returns the operator.
func New(cfg Config) *Operator { return &Operator{cfg} }

// Name implements operators.DataOperator.
func (*Operator) Name() string { return Name }

// Init implements operators.DataOperator.
func (*Operator) Init(*params.Params) error { return nil }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return nil }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params {
	return api.Params{{Key: paramBy, Title: "Rows of the table", DefaultValue: top.ByLine.String(), TypeHint: api.TypeString, PossibleValues: top.Names(),
		Description: "What the rows of the table are: " + strings.Join(top.Names(), ", ")}}
}

// Priority implements operators.DataOperator.
func (*Operator) Priority() int { return Priority }

// InstantiateDataOperator stays out where no table was requested.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	by := top.ByLine
	if word := values[paramBy]; word != "" {
		var ok bool
		if by, ok = top.Parse(word); !ok {
			return nil, fmt.Errorf("--%s %s: want one of %s", paramBy, word, strings.Join(top.Names(), ", "))
		}
	}
	if o.cfg.Console == nil || gc.IsRemoteCall() || gc.IsClient() {
		return nil, nil
	}
	i := &instance{tenant: o.cfg.Tenant}
	if v, ok := gc.GetVar(VarScreen); ok {
		i.screen, _ = v.(*Screen)
	}
	if v, ok := gc.GetVar(VarTables); ok {
		i.tables, _ = v.(Tables)
	} else if i.screen == nil {
		return nil, nil
	}
	if i.screen == nil {
		i.owned = true
		i.screen = NewScreen(ScreenConfig{Console: o.cfg.Console, Title: gc.ImageName(), By: by, Views: viewsOf(gc), Limit: i.tables.Limit})
	}
	return i, nil
}

// viewsOf a gadget; nil: it has no rows with stacks.
func viewsOf(gc operators.GadgetContext) []top.View {
	ds := rows.Find(gc.GetDataSources())
	if ds == nil {
		return nil
	}
	return top.ViewsOf(map[string]profile.Subject{"allocs": profile.Memory, "calls": profile.Calls, "samples": profile.CPU}[ds.Name()])
}

type instance struct {
	screen *Screen
	owned  bool // the screen ends with this run
	tables Tables
	tenant func(pid uint32) procmaps.Tenant
	mu     sync.Mutex // for the rows that are known
}

// Name implements operators.DataOperatorInstance.
func (*instance) Name() string { return Name }

func (i *instance) shows(source string) bool {
	return i.tables.Sources == nil || i.tables.Sources[source]
}

// PreStart subscribes: the fields of other operators exist from here on.
func (i *instance) PreStart(gc operators.GadgetContext) error { return i.bind(gc) }

// Start shows the screen, where there is one to see it.
func (i *instance) Start(gc operators.GadgetContext) error {
	mark, _ := gc.GetVar(sink.VarMark)
	asked, _ := mark.(func())
	i.screen.begin(run{gc: gc, cancel: gc.Cancel, mark: asked})
	return nil
}

// Stop says that the run ends: removing probes may take seconds.
func (i *instance) Stop(operators.GadgetContext) error {
	i.screen.ending()
	return nil
}

// PostStop leaves the table on the terminal: only now have the last rows come.
func (i *instance) PostStop(operators.GadgetContext) error {
	if i.owned {
		return i.screen.Close()
	}
	return nil
}

// Close is called without Start and Stop, too.
func (i *instance) Close(operators.GadgetContext) error {
	if i.owned {
		i.screen.Abandon()
	}
	return nil
}
