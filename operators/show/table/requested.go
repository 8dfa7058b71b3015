// SPDX-License-Identifier: Apache-2.0

package table

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	clioperator "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cli"
)

// VarRequested is the gadget context's variable with a Requested.
const VarRequested = "gpu-gadgets.requested"

// Requested are the values of flags of Inspektor Gadget's tables that a user has typed, "" for none. Inspektor Gadget
// prints nothing of a data source for which they are wrong, and continues.
type Requested struct {
	Fields string // --fields, "allocs:kind,inuse;ooms:api" or "kind,inuse"
	Output string // --output, "json" or "allocs:json,ooms:none"
}

// check returns what is wrong, with what is possible.
func (r Requested) check(gc operators.GadgetContext) error {
	sources := gc.GetDataSources()
	parts := strings.Split(r.Output, ",")
	// Scripts have one -o for several gadgets: an unknown source is an error only if no other one is named.
	isForOthers := slices.ContainsFunc(parts, func(part string) bool {
		name, _, isNamed := strings.Cut(part, ":")
		return isNamed && sources[name] != nil
	})
	for _, part := range parts {
		name, _, isNamed := strings.Cut(part, ":")
		if part == "" || isForOthers && isNamed && sources[name] == nil {
			continue
		}
		if err := checkMode(sources, part); err != nil {
			return err
		}
	}
	for part := range strings.SplitSeq(r.Fields, ";") {
		if err := checkFields(sources, part); part != "" && err != nil {
			return err
		}
	}
	return nil
}

// checkMode checks "source:mode" or "mode".
func checkMode(sources map[string]datasource.DataSource, text string) error {
	name, mode, isNamed := strings.Cut(text, ":")
	if !isNamed {
		name, mode = "", text
	} else if sources[name] == nil && mode == clioperator.ModeNone { // it may come with another flag
		return nil
	} else if sources[name] == nil {
		return noSource("-o", text, name, sources)
	}
	known := map[string]bool{}
	for _, source := range sources {
		if isNamed && source.Name() != name {
			continue
		}
		modes := clioperator.DefaultSupportedOutputModes
		if annotated, ok := source.Annotations()[clioperator.AnnotationSupportedOutputModes]; ok {
			modes = strings.Split(annotated, ",")
		}
		for _, m := range modes {
			known[m] = true
		}
	}
	if known[mode] || len(known) == 0 {
		return nil
	}
	hint := ""
	if sources[mode] != nil {
		hint = fmt.Sprintf("; %s is a data source: %s:columns", mode, mode)
	}
	return fmt.Errorf("-o %s: want %s%s", text, strings.Join(slices.Sorted(maps.Keys(known)), ", "), hint)
}

func noSource(flag, text, name string, sources map[string]datasource.DataSource) error {
	return fmt.Errorf("%s %s: this gadget has no data source %s, but %s", flag, text, name, strings.Join(slices.Sorted(maps.Keys(sources)), ", "))
}

// checkFields checks "source:field,field" or "field,field", which is for the sources that have all of these.
func checkFields(sources map[string]datasource.DataSource, text string) error {
	name, list, isNamed := strings.Cut(text, ":")
	candidates := slices.SortedFunc(maps.Values(sources), func(a, b datasource.DataSource) int { return cmp.Compare(a.Name(), b.Name()) })
	if !isNamed {
		list = text
	} else if sources[name] == nil {
		return noSource("--fields", text, name, sources)
	} else {
		candidates = []datasource.DataSource{sources[name]}
	}
	var nearest datasource.DataSource
	var wrong []string // of the nearest, which has most of the fields
	for _, source := range candidates {
		unknown, err := unknownFields(source, list)
		if err != nil || len(unknown) == 0 {
			return nil // of what it cannot read, Inspektor Gadget decides
		}
		if nearest == nil || len(unknown) < len(wrong) || len(unknown) == len(wrong) && len(source.Fields()) > len(nearest.Fields()) {
			nearest, wrong = source, unknown
		}
	}
	if nearest == nil {
		return nil
	}
	return fmt.Errorf("--fields %s: %s has no field %s, but %s", text, nearest.Name(), strings.Join(wrong, ", "), strings.Join(fieldsOf(nearest), ", "))
}

// unknownFields are those of a list that a source's table cannot show.
func unknownFields(source datasource.DataSource, list string) (unknown []string, err error) {
	parser, err := source.Parser()
	if err != nil {
		return nil, fmt.Errorf("read the columns of %s: %w", source.Name(), err)
	}
	formatter := parser.GetTextColumnsFormatter()
	for field := range strings.SplitSeq(list, ",") {
		field = strings.TrimLeft(strings.TrimSpace(field), "+")
		if field == "" || field == "*" || field[0] == '-' { // all, or one that is left out, whether it is there or not
			continue
		}
		if formatter.SetShowColumns([]string{field}) != nil {
			unknown = append(unknown, field)
		}
	}
	return unknown, nil
}

// fieldsOf are the fields of a source that can be shown, as --help-all lists them.
func fieldsOf(source datasource.DataSource) (names []string) {
	for _, f := range source.Fields() {
		if !datasource.FieldFlagUnreferenced.In(f.Flags) && !datasource.FieldFlagContainer.In(f.Flags) && !datasource.FieldFlagEmpty.In(f.Flags) {
			names = append(names, f.FullName)
		}
	}
	slices.Sort(names)
	return names
}
