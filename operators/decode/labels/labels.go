// SPDX-License-Identifier: Apache-2.0

// Package labels is the Inspektor Gadget operator that gives rows the labels that users
// request by --labels: a field labels, from the environment or the title of the row's
// process, from the span of a trace that the row belongs to, or from a frame of its stack. Files, profiles and metrics have each as a label.
package labels

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	metadatav1 "github.com/inspektor-gadget/inspektor-gadget/pkg/metadata/v1"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	log "github.com/sirupsen/logrus"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/spans"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

const (
	operatorName = "labels"
	// Priority is before those that filter, sort and send by the labels.
	Priority = 40
	// framesPriority is after stacks have names.
	framesPriority = symbolize.Priority + 1

	paramLabels = "labels"
	paramValues = "label-values"
)

// Config of the operator.
type Config struct {
	ProcFS string
}

// Operator is registered once per process.
type Operator struct{ cfg Config }

// New returns the operator.
func New(cfg Config) *Operator { return &Operator{cfg} }

func (*Operator) Name() string              { return operatorName }
func (*Operator) Init(*params.Params) error { return nil }
func (*Operator) GlobalParams() api.Params  { return nil }
func (*Operator) Priority() int             { return Priority }

// InstanceParams are known to every gadget: whether it has processes is known when its
// data sources are.
func (*Operator) InstanceParams() api.Params {
	return api.Params{
		{Key: paramLabels, Title: "Labels of processes",
			Description: "Comma-separated labels for rows, profiles and metrics: slurm, ray, vllm, NAME=env:VARIABLE, NAME=title:REGEXP (the first group, of the process title), NAME=frame:REGEXP (of the outermost frame of the stack that matches) or, with --spans, NAME=span:ATTRIBUTE (such as http.route)"},
		{Key: paramValues, Title: "Values of a label", DefaultValue: "100", TypeHint: api.TypeUint32,
			Description: "Number of different values that each of --labels may have; further processes, spans or stacks have the value other"},
	}
}

// InstantiateDataOperator adds the field to each data source about processes. It takes part
// where there is one, which is what makes the parameters known, and skips clients, because
// the processes are on the other machine.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	if gc.IsClient() {
		return nil, nil
	}
	var sources []datasource.DataSource
	for _, ds := range gc.GetDataSources() {
		if ds.GetField("process") != nil && ds.GetField("proc.pid") != nil {
			sources = append(sources, ds)
		}
	}
	rules, err := labels.Parse(values[paramLabels])
	switch {
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", paramLabels, err)
	case len(sources) == 0:
		return nil, nil
	case len(rules) == 0:
		return instance{}, nil
	}
	limit, err := strconv.ParseUint(values[paramValues], 10, 32)
	if err != nil || limit == 0 {
		return nil, fmt.Errorf("--%s: want a number of 1 or more, not %q", paramValues, values[paramValues])
	}
	facts := spans.Of(gc)
	if wanted := rules.OfSpans(); len(wanted) > 0 {
		if facts == nil {
			return nil, fmt.Errorf("--%s: span:%s needs --spans", paramLabels, wanted[0])
		}
		if err := facts.Want(wanted); err != nil {
			return nil, fmt.Errorf("--%s: %w", paramLabels, err)
		}
	}
	set := labels.New(labels.Config{ProcFS: o.cfg.ProcFS, Rules: rules, Values: int(limit), Warn: func(name string) {
		log.Warnf("Label %s has more than %d values (--%s): further processes, spans or stacks have the value %s.", name, limit, paramValues, labels.Other)
	}})
	priority := Priority
	if rules.HasFrames() {
		priority = framesPriority
	}
	for _, ds := range sources {
		if err := subscribe(gc, ds, priority, set, facts, rules.HasFrames()); err != nil {
			return nil, fmt.Errorf("--%s: %w", paramLabels, err)
		}
	}
	return instance{set}, nil
}

// subscribe gives the rows of a data source their labels; facts is nil without --spans.
func subscribe(gc operators.GadgetContext, ds datasource.DataSource, priority int, set *labels.Set, facts *spans.Facts, frames bool) error {
	process, pid, span, stack := ds.GetField("process"), ds.GetField("proc.pid"), ds.GetField("span_id"), ds.GetField("stack_id")
	field, err := ds.AddField("labels", api.Kind_String, datasource.WithAnnotations(map[string]string{
		metadatav1.DescriptionAnnotation:     "Labels of the process that --labels requests, NAME=VALUE separated by commas",
		metadatav1.ColumnsHiddenAnnotation:   "true",
		metadatav1.ColumnsWidthAnnotation:    "40",
		metadatav1.ColumnsEllipsisAnnotation: string(metadatav1.EllipsisEnd),
	}))
	if err != nil {
		return fmt.Errorf("add the field labels to %s: %w", ds.Name(), err)
	}
	if err := ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		id, _ := process.Uint64(d)
		number, _ := pid.Uint32(d)
		var row labels.Row
		if facts != nil && span != nil {
			text, _ := span.String(d)
			row.Span = spans.ParseSpan(text)
			row.Attribute = func(name string) string { return facts.Attribute(id, row.Span, name) }
		}
		if frames && stack != nil {
			row.Stack, _ = stack.Uint64(d)
			row.Frames = func() []string { return framesOf(gc, id, number, row.Stack) }
		}
		return field.PutString(d, set.OfRow(id, number, row))
	}, priority); err != nil {
		return fmt.Errorf("subscribe to %s: %w", ds.Name(), err)
	}
	return nil
}

// framesOf are the frames of a stack as rules match them, root first.
func framesOf(gc operators.GadgetContext, process uint64, pid uint32, id uint64) (frames []string) {
	stacks, ok := symbolize.FromContext(gc)
	if !ok {
		return nil
	}
	for _, f := range slices.Backward(stacks.Stack(process, pid, id).Stack) {
		frames = append(frames, f.Function+" ("+f.File+")")
	}
	return frames
}

type instance struct{ set *labels.Set } // nil: no labels

func (instance) Name() string                        { return operatorName }
func (instance) Start(operators.GadgetContext) error { return nil }
func (instance) Close(operators.GadgetContext) error { return nil }

// Stop reports how many did not fit.
func (i instance) Stop(gc operators.GadgetContext) error {
	if i.set == nil {
		return nil
	}
	others := i.set.Others()
	for _, name := range slices.Sorted(maps.Keys(others)) {
		gc.Logger().Warnf("Label %s: %d processes, spans or stacks have the value %s", name, others[name], labels.Other)
	}
	return nil
}
