// SPDX-License-Identifier: Apache-2.0

// Package table makes the rows of a gadget fit for a person's eyes: largest
// in-use first, or most samples, with their share; sizes in binary units, and
// one table that is redrawn in place on a terminal. The fields that programs read
// are left as they are.
package table

import (
	"fmt"
	"math"
	"os"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	clioperator "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cli"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// Priority is behind the operator that names stacks (50) and before ig's
	// sort (9500), whose --sort decides.
	Priority = 9400

	orderField     = "inuse_bytes"
	samplesField   = "samples"
	shareField     = "share"
	containerField = "runtime.containerName"
	// suffix of a field that holds bytes; without it, the human-readable field,
	// which ig's formatter fills in decimal units.
	suffix = "_bytes"
)

// VarUnread is the gadget context's variable with a func(source string) bool: whether the source's rows
// are printed nowhere and need no human-readable fields, which would take a third of the time of
// reading a large table. Without it, they may be printed: by a client of the daemon.
const VarUnread = "gpu-gadgets.unread"

func isUnread(gc operators.GadgetContext, source string) bool {
	value, _ := gc.GetVar(VarUnread)
	isUnread, ok := value.(func(string) bool)
	return ok && isUnread(source)
}

// Config of the operator.
type Config struct {
	// HasContainers reports whether anything on this machine can name containers.
	// Where nothing can, the table has no column for them.
	HasContainers func() bool
}

// Operator takes part in gadgets whose rows have inuse_bytes or samples.
type Operator struct{ cfg Config }

// New returns the data operator.
func New(cfg Config) *Operator { return &Operator{cfg} }

// Name implements operators.DataOperator.
func (*Operator) Name() string { return "table" }

// Init implements operators.DataOperator.
func (*Operator) Init(*params.Params) error { return nil }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return nil }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params { return nil }

// Priority implements operators.DataOperator.
func (*Operator) Priority() int { return Priority }

// InstantiateDataOperator stays out where no data source has sizes, and there is nothing to check.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	value, _ := gc.GetVar(VarRequested)
	requested, active := value.(Requested)
	for _, source := range gc.GetDataSources() {
		if field := source.GetField(containerField); field != nil && !o.cfg.HasContainers() {
			field.SetHidden(true, false)
		}
		fields, pairs := orderOf(source), sizesOf(source)
		if len(fields) == 0 && len(pairs) == 0 {
			continue
		}
		active = true
		if err := source.Subscribe(sizes(pairs), Priority); err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", source.Name(), err)
		}
		if len(fields) == 0 {
			continue
		}
		if source.Type() != datasource.TypeArray {
			continue
		}
		if err := source.SubscribeArray(func(_ datasource.DataSource, rows datasource.DataArray) error {
			sortRows(rows, fields)
			return nil
		}, Priority); err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", source.Name(), err)
		}
		if fields[0].Name() == samplesField {
			if err := addShare(source, fields[0]); err != nil {
				return nil, err
			}
		}
		if isTerminal(os.Stdout) {
			source.AddAnnotation(clioperator.AnnotationClearScreenBefore, "true")
		}
	}
	if !active {
		return nil, nil
	}
	return instance{requested}, nil
}

// orderOf is the fields to sort by, none for a source that has neither in-use
// bytes nor samples nor calls.
func orderOf(source datasource.DataSource) (fields []datasource.FieldAccessor) {
	names := []string{samplesField}
	if source.GetField(orderField) != nil {
		// What holds nothing now: what once held, then what passes through most.
		names = []string{orderField, "peak_bytes", "alloc_bytes"}
	} else if source.GetField("host_ns") != nil {
		names = []string{"host_ns", "calls"}
	}
	for _, name := range names {
		if field := source.GetField(name); field != nil && field.Type() == api.Kind_Uint64 {
			fields = append(fields, field)
		}
	}
	return fields
}

// size is a field of bytes, and the human-readable one.
type size struct{ from, to datasource.FieldAccessor }

// sizesOf finds every X_bytes that has a human-readable field X.
func sizesOf(source datasource.DataSource) (pairs []size) {
	for _, field := range source.Fields() {
		name := field.FullName
		if len(name) <= len(suffix) || name[len(name)-len(suffix):] != suffix {
			continue
		}
		from, to := source.GetField(name), source.GetField(name[:len(name)-len(suffix)])
		if to != nil && from.Type() == api.Kind_Uint64 && to.Type() == api.Kind_String {
			pairs = append(pairs, size{from, to})
		}
	}
	return pairs
}

// sizes fills the human-readable fields.
func sizes(pairs []size) datasource.DataFunc {
	return func(_ datasource.DataSource, row datasource.Data) error {
		for _, p := range pairs {
			bytes, err := p.from.Uint64(row)
			if err == nil {
				// It fails for a packet that is not ours to write: leave it.
				_ = p.to.PutString(row, profile.FormatBytes(int64(min(bytes, math.MaxInt64))))
			}
		}
		return nil
	}
}

// addShare adds what part of all rows' samples a row is.
func addShare(source datasource.DataSource, samples datasource.FieldAccessor) error {
	share, err := source.AddField(shareField, api.Kind_String, datasource.WithAnnotations(map[string]string{
		"description":       "Share of the samples of all rows",
		"columns.width":     "7",
		"columns.alignment": "right",
		"columns.fixed":     "true",
	}))
	if err != nil {
		return fmt.Errorf("add field %s to %s: %w", shareField, source.Name(), err)
	}
	// After the filter: of what is seen.
	if err := source.SubscribeArray(func(_ datasource.DataSource, rows datasource.DataArray) error {
		var sum uint64
		for n := range rows.Len() {
			value, _ := samples.Uint64(rows.Get(n))
			sum += value
		}
		for n := range rows.Len() {
			value, _ := samples.Uint64(rows.Get(n))
			// It fails for a packet that is not ours to write: leave it.
			_ = share.PutString(rows.Get(n), profile.FormatShare(value, sum))
		}
		return nil
	}, Priority); err != nil {
		return fmt.Errorf("subscribe to %s: %w", source.Name(), err)
	}
	return nil
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

type instance struct{ requested Requested }

// PreStart runs when all operators have added their fields.
func (i instance) PreStart(gc operators.GadgetContext) error { return i.requested.check(gc) }

func (instance) Name() string                        { return "table" }
func (instance) Start(operators.GadgetContext) error { return nil }
func (instance) Stop(operators.GadgetContext) error  { return nil }
func (instance) Close(operators.GadgetContext) error { return nil }
