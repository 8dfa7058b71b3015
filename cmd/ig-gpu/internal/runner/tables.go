// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"slices"
	"strconv"
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	clioperator "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cli"

	"github.com/gpu-gadgets/gpu-gadgets/operators/show/live"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/objects"
)

// isChosen: the user has requested columns, an order or rows that only Inspektor Gadget's
// own tables have.
func isChosen(values api.ParamValues) bool {
	return slices.ContainsFunc([]string{columnsParam, "operator.sort.sort", "operator.ages.older-than", "operator.torch.fits"}, func(name string) bool {
		return values[name] != ""
	}) || values["operator.ages.ages"] == "true" || values["operator.pystack.mode"] == "dump"
}

// mains are the data sources that are the gadgets' tables.
var mains = map[string]string{
	"cuda_alloc": "allocs", "hip_alloc": "allocs", "cuda_kernel": "calls", "hip_kernel": "calls", "py_stack": "samples",
	"nccl_trace": "collectives",
}

// takeTables turns off Inspektor Gadget's tables of the data sources that our own operator
// shows, and returns these; false: none, since the gadget's table is not wanted.
func takeTables(gadget string, values api.ParamValues) (live.Tables, bool) {
	output := values[outputParam]
	if output == "" {
		return live.Tables{}, false
	}
	t := live.Tables{Sources: map[string]bool{}}
	modes, all := splitModes(output)
	for _, name := range live.Shown() {
		mode, isNamed := modes[name]
		if !isNamed {
			mode = all
		}
		if mode == clioperator.ModeColumns || mode == "" {
			t.Sources[name] = true
			modes[name] = clioperator.ModeNone
		}
	}
	if main := mains[gadget]; main == "" || !t.Sources[main] {
		return live.Tables{}, false
	}
	values[outputParam] = joinModes(modes, all)
	if n, err := strconv.Atoi(values["operator.limiter.max-entries"]); err == nil && n > 0 {
		t.Limit = n
	}
	return t, true
}

// splitModes reads --output: a source that is not named has the mode of all, or, if that is empty, Inspektor
// Gadget's default.
func splitModes(output string) (modes map[string]string, all string) {
	modes = map[string]string{}
	for part := range strings.SplitSeq(output, ",") {
		name, mode, isNamed := strings.Cut(part, ":")
		if !isNamed {
			all = name
			continue
		}
		modes[name] = mode
	}
	return modes, all
}

// unread reports for a data source whether its rows are printed neither by Inspektor Gadget, whose --output
// this is, nor in JSON by our own operator.
func unread(output, asJSON string) func(source string) bool {
	modes, all := splitModes(output)
	ours := strings.Split(asJSON, ",")
	return func(source string) bool {
		mode, isNamed := modes[source]
		if !isNamed {
			mode = all
		}
		return mode == clioperator.ModeNone && asJSON != objects.Every && !slices.Contains(ours, source)
	}
}

// joinModes writes --output, in a fixed order.
func joinModes(modes map[string]string, all string) string {
	var parts []string
	for name, mode := range modes {
		parts = append(parts, name+":"+mode)
	}
	slices.Sort(parts)
	if all != "" {
		parts = append([]string{all}, parts...)
	}
	return strings.Join(parts, ",")
}
