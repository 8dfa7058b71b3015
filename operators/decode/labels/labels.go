// SPDX-License-Identifier: Apache-2.0

// Package labels is the Inspektor Gadget operator that gives rows the labels that users
// request by --labels: a field labels, from the environment or the title of the row's
// process, or from the span of a trace that the row belongs to. Files, profiles and metrics have each as a label.
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
)

const (
	operatorName = "labels"
	// Priority is before those that filter, sort and send by the labels.
	Priority = 40

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
			Description: "Comma-separated labels for rows, profiles and metrics: slurm, ray, vllm, NAME=env:VARIABLE, NAME=title:REGEXP (the first group, of the process title) or, with --spans, NAME=span:ATTRIBUTE (such as http.route)"},
		{Key: paramValues, Title: "Values of a label", DefaultValue: "100", TypeHint: api.TypeUint32,
			Description: "Number of different values that each of --labels may have; further processes or spans have the value other"},
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
		log.Warnf("Label %s has more than %d values (--%s): further processes or spans have the value %s.", name, limit, paramValues, labels.Other)
	}})
	for _, ds := range sources {
		if err := subscribe(ds, set, facts); err != nil {
			return nil, fmt.Errorf("--%s: %w", paramLabels, err)
		}
	}
	return instance{set}, nil
}

func subscribe(ds datasource.DataSource, set *labels.Set, facts *spans.Facts) error {
	process, pid, span := ds.GetField("process"), ds.GetField("proc.pid"), ds.GetField("span_id")
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
		if facts == nil || span == nil {
			return field.PutString(d, set.Of(id, number))
		}
		text, _ := span.String(d)
		of := spans.ParseSpan(text)
		return field.PutString(d, set.OfSpan(id, number, of, func(name string) string { return facts.Attribute(id, of, name) }))
	}, Priority); err != nil {
		return fmt.Errorf("subscribe to %s: %w", ds.Name(), err)
	}
	return nil
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
		gc.Logger().Warnf("Label %s: %d processes or spans have the value %s", name, others[name], labels.Other)
	}
	return nil
}
