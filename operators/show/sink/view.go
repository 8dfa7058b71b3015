// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	clioperator "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cli"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/difference"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

// VarOutput is the variable of the gadget's context that has the value of --output, which
// ig gives to its own operator only. Where it is not set, no view is offered.
const VarOutput = "gpu-gadgets.output"

// Console is the terminal at which the program was started.
type Console interface {
	io.Writer
	// IsInteractive: the user sees the output there, and its keys are for us.
	IsInteractive() bool
	// Size is the number of columns and of lines; 0 where it is not known.
	Size() (columns, lines int)
	// Read calls on with each key, until Restore.
	Read(on func(key byte))
	// Restore leaves the terminal as it was. It may be called again.
	Restore()
}

const (
	keyMark, keyDiff, keyQuit = 'm', 'd', 'q'

	// beforeTable and behindTable are the subscriptions around ig's, which prints.
	beforeTable = clioperator.Priority - 1
	behindTable = clioperator.Priority + 1

	clear = "\033[H\033[2J"
	// around are the lines of the view that are not of its table's body: a title, the
	// table's head, two sums, how many are left out, and the keys.
	around = 6
)

// view is what a terminal shows instead of the gadget's table: what changed since the
// last mark. Its members are guarded by the instance's mu.
type view struct {
	console Console
	base    *profile.Profile // as the last mark found it; nil: there is none yet
	number  int              // of the mark
	shown   bool
}

// canWatch: a person sees the table of a gadget of memory.
func (i *instance) canWatch(gc operators.GadgetContext, source rows.Source) bool {
	output, _ := gc.GetVar(VarOutput)
	text, _ := output.(string)
	return i.console != nil && source.Subject == profile.Memory && isTable(text, source.Data.Name()) && i.console.IsInteractive()
}

// isTable: the value of --output ("columns", or "allocs:columns,pools:none") makes a table
// of the data source, as do sources that are not named. Where nothing is known there is none.
func isTable(output, source string) bool {
	if output == "" {
		return false
	}
	mode := clioperator.ModeColumns
	for part := range strings.SplitSeq(output, ",") {
		name, value, found := strings.Cut(part, ":")
		switch {
		case found && name == source:
			return value == clioperator.ModeColumns
		case !found:
			mode = name
		}
	}
	return mode == clioperator.ModeColumns
}

// watch subscribes the view, where there is one to see it.
func (i *instance) watch(gc operators.GadgetContext, source rows.Source) error {
	if !i.canWatch(gc, source) {
		return nil
	}
	i.view = &view{console: i.console}
	if err := source.Data.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.view.shown {
			return all.Resize(0) // ig prints a head only, over which the view is drawn
		}
		return nil
	}, beforeTable); err != nil {
		return fmt.Errorf("subscribe to %s: %w", source.Data.Name(), err)
	}
	if err := source.Data.SubscribeArray(func(datasource.DataSource, datasource.DataArray) error {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.draw(gc.Context().Err() != nil)
		return nil
	}, behindTable); err != nil {
		return fmt.Errorf("subscribe to %s: %w", source.Data.Name(), err)
	}
	return nil
}

// Start listens to the keys of the terminal, where there is one.
func (i *instance) Start(gc operators.GadgetContext) error {
	if i.view != nil {
		i.console.Read(func(key byte) { i.key(gc, key) })
	}
	return nil
}

// Stop gives the terminal back.
func (i *instance) Stop(operators.GadgetContext) error {
	if i.view != nil {
		i.console.Restore()
	}
	return nil
}

// records tells whether anybody wants the rows: a terminal only from its first mark on.
func (i *instance) records() bool {
	return i.files || i.view != nil && (i.view.base != nil || i.marks != nil && len(i.marks.asked)+len(i.marks.due) > 0)
}

// key does what a key stands for.
func (i *instance) key(gc operators.GadgetContext, key byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended || i.marks == nil {
		return
	}
	switch key {
	case keyMark:
		i.marks.asked = append(i.marks.asked, nil)
	case keyDiff:
		i.view.shown = !i.view.shown
		if i.view.shown {
			i.draw(false)
		}
	case keyQuit:
		gc.Cancel()
	}
}

// draw prints the view, or what the keys are below ig's table. It is called with i.mu
// held. A table that stays when the run has ended has no keys.
func (i *instance) draw(last bool) {
	v := i.view
	columns, lines := v.console.Size()
	var out bytes.Buffer
	if v.shown {
		out.WriteString(clear)
		if v.base == nil {
			fmt.Fprintln(&out, "No mark is set yet: set one to see the growth since then.")
		} else {
			fmt.Fprintf(&out, "Since mark %d at %s, %v ago. GREW: allocated and kept. FREED: freed.\n", v.number, v.base.Time.Format(time.TimeOnly),
				i.recorder.at.Sub(v.base.Time).Round(time.Second))
			// Only a full disk or a closed terminal fails, and the error cannot be reported.
			_ = difference.Write(&out, profile.Diff(v.base, i.recorder.profile()),
				difference.Options{Limit: max(lines-around, 1), Width: columns})
		}
	}
	if !last {
		other := "what has changed since the last"
		if v.shown {
			other = "all memory again"
		}
		fmt.Fprintf(&out, "keys: m sets a mark (%d so far), d shows %s, q ends\n", v.number, other)
	}
	_, _ = v.console.Write(out.Bytes())
}
