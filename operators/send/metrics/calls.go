// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

// calls are the metrics of the gadget cuda_kernel: processes' calls to the driver, and
// how long the GPU ran kernels if that is reported (--device-times). There are no series
// per kernel: there are thousands of kernels.
type calls struct {
	calls, launches, copied, kernels metric.Int64ObservableCounter
	waits, onDevice                  metric.Float64ObservableCounter
}

func newCalls(meter metric.Meter) (*calls, error) {
	c := &calls{}
	err := counters(meter,
		counter{&c.calls, "gpu.calls", "{call}", "Calls to the CUDA driver and its libraries since attach, by operation and error"},
		counter{&c.launches, "gpu.launches", "{launch}", "Kernels (operation launch) and graphs that were launched"},
		counter{&c.copied, "gpu.copied", "By", "Bytes copied, by direction"},
		counter{&c.kernels, "gpu.kernels", "{kernel}", "Kernels whose time on the GPU was reported by a library with CUPTI in the process (--device-times)"})
	if err != nil {
		return nil, err
	}
	c.waits, err = meter.Float64ObservableCounter("gpu.waits.time", metric.WithUnit("s"),
		metric.WithDescription("Time that threads waited for a device, a stream, an event or a synchronous copy"))
	if err != nil {
		return nil, err
	}
	c.onDevice, err = meter.Float64ObservableCounter("gpu.kernels.time", metric.WithUnit("s"),
		metric.WithDescription("Time that these kernels ran; those of several streams run side by side"))
	return c, err
}

func (c *calls) instruments() []metric.Observable {
	return []metric.Observable{c.calls, c.launches, c.copied, c.waits, c.kernels, c.onDevice}
}

func (c *calls) observe(o metric.Observer, all []Sample, l labels) {
	each := func(holds func(Call) bool, attributes func(Call) []attribute.KeyValue, observe func(Sums, metric.ObserveOption)) {
		var some []Sample
		for _, s := range all {
			if holds(s.Call) {
				some = append(some, s)
			}
		}
		for _, g := range groups(some, func(s Sample) attribute.Set {
			return l.with(s.Series, attributes(s.Call)...)
		}) {
			observe(g.sums, metric.WithAttributeSet(g.labels))
		}
	}
	operation := func(c Call) attribute.KeyValue { return attribute.String("operation", label.Valid(c.Operation)) }
	each(func(c Call) bool { return !rows.IsKernel(c.Operation) },
		func(c Call) []attribute.KeyValue {
			return []attribute.KeyValue{operation(c), attribute.String("error.type", label.Valid(c.Error))}
		},
		func(s Sums, with metric.ObserveOption) { o.ObserveInt64(c.calls, s.Calls, with) })
	each(func(c Call) bool { return c.Error == "" && (c.Operation == "launch" || c.Operation == "graph") },
		func(c Call) []attribute.KeyValue { return []attribute.KeyValue{operation(c)} },
		func(s Sums, with metric.ObserveOption) { o.ObserveInt64(c.launches, s.Calls, with) })
	each(func(c Call) bool { return c.Error == "" && c.Operation == "copy" },
		func(c Call) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("direction", label.Valid(c.Direction))}
		},
		func(s Sums, with metric.ObserveOption) { o.ObserveInt64(c.copied, s.CallBytes, with) })
	each(func(c Call) bool { return c.Operation == "wait" || c.Waits && c.Error == "" },
		func(Call) []attribute.KeyValue { return nil },
		func(s Sums, with metric.ObserveOption) {
			o.ObserveFloat64(c.waits, time.Duration(s.CallNanoseconds).Seconds(), with)
		})
	each(func(c Call) bool { return rows.IsKernel(c.Operation) },
		func(Call) []attribute.KeyValue { return nil },
		func(s Sums, with metric.ObserveOption) {
			o.ObserveInt64(c.kernels, s.Kernels, with)
			o.ObserveFloat64(c.onDevice, time.Duration(s.DeviceNanoseconds).Seconds(), with)
		})
}

// callFields are those of the rows of cuda_kernel.
type callFields struct {
	seriesFields
	operation, direction, error, errorRaw datasource.FieldAccessor
	api                                   datasource.FieldAccessor // nil: of older gadgets
	calls, bytes, nanoseconds             datasource.FieldAccessor
	onDevice                              datasource.FieldAccessor
	stackID, row, spanID, born            datasource.FieldAccessor // nil: of totals
}

// subscribeCalls passes the totals of calls to take at each interval. With sampling they
// are in the data source totals, which is empty otherwise, and the rows are estimates.
// Kernels on the GPU are in the rows only, and exact. Rows that are removed stay in the sums until
// their process has ended.
func subscribeCalls(sources map[string]datasource.DataSource, now func() (ended func(profile.Process) bool),
	take func([]Sample, func(profile.Process) bool)) error {
	var hasTotals atomic.Bool
	var kernels atomic.Pointer[[]Sample] // of the newest rows
	for _, name := range []string{"calls", "totals"} {
		ds := sources[name]
		if ds == nil || ds.Type() != datasource.TypeArray {
			continue
		}
		f, err := bindCalls(ds)
		if err != nil {
			return err
		}
		isTotals := name == "totals"
		spans := newCallSpans()
		if err := ds.SubscribeArray(func(_ datasource.DataSource, array datasource.DataArray) error {
			if isTotals && array.Len() > 0 {
				hasTotals.Store(true)
			}
			var onDevice []Sample
			all := make([]Sample, 0, array.Len())
			sort := func(s Sample) {
				if rows.IsKernel(s.Call.Operation) {
					onDevice = append(onDevice, s)
				} else {
					all = append(all, s)
				}
			}
			for n := range array.Len() {
				s := f.read(array.Get(n))
				sort(s)
				if f.row != nil {
					spans.see(f.id(array.Get(n), s), s)
				}
			}
			ended := now()
			for _, s := range spans.forgotten(ended) {
				sort(s)
			}
			if !isTotals {
				kernels.Store(&onDevice)
			}
			if hasTotals.Load() != isTotals {
				return nil
			}
			if known := kernels.Load(); known != nil {
				all = append(all, *known...)
			}
			take(all, ended)
			return nil
		}, subscription); err != nil {
			return err
		}
	}
	return nil
}

func bindCalls(ds datasource.DataSource) (callFields, error) {
	series, err := bindSeries(ds)
	f := callFields{
		seriesFields: series,
		operation:    ds.GetField("operation"), direction: ds.GetField("direction"),
		api: ds.GetField("api"), error: ds.GetField("error"), errorRaw: ds.GetField("error_raw"),
		calls: ds.GetField("calls"), bytes: ds.GetField("bytes"), nanoseconds: ds.GetField("host_ns"),
		onDevice: ds.GetField("device_ns"),
		stackID:  ds.GetField("stack_id"), row: ds.GetField("row"), spanID: ds.GetField("span_id"), born: ds.GetField("row_boot_ns"),
	}
	for name, field := range map[string]datasource.FieldAccessor{
		"operation": f.operation, "error_raw": f.errorRaw, "calls": f.calls, "bytes": f.bytes, "host_ns": f.nanoseconds,
	} {
		if field == nil {
			err = errors.Join(err, fmt.Errorf("data source %s has no %s", ds.Name(), name))
		}
	}
	return f, err
}

// id identifies the row of a sample. rows.Source does so, too, but reads again what the sample has.
func (f *callFields) id(d datasource.Data, s Sample) profile.RowID {
	id := profile.RowID{Process: s.Process.ID, Device: s.Device, Kind: s.Call.Operation}
	id.Row, _ = f.row.Uint64(d) // hashes
	if f.stackID != nil {
		id.StackID, _ = f.stackID.Uint64(d)
	}
	if span := text(f.spanID, d); span != "" {
		id.Span, id.Born = profile.ParseSpan(span), uint64(number(f.born, d))
	}
	return id
}

func (f *callFields) read(d datasource.Data) Sample {
	s := Sample{Series: f.seriesFields.read(d)}
	s.Call = Call{Operation: text(f.operation, d), Direction: text(f.direction, d)}
	s.Call.Waits = s.Call.Operation == "copy" && profile.IsWait("copy", s.Call.Direction, text(f.api, d))
	if code := number(f.errorRaw, d); code != 0 {
		if s.Call.Error = text(f.error, d); s.Call.Error == "" {
			s.Call.Error = fmt.Sprint(code)
		}
	}
	if rows.IsKernel(s.Call.Operation) {
		s.Kernels, s.DeviceNanoseconds = number(f.calls, d), number(f.onDevice, d)
		return s
	}
	s.Calls, s.CallBytes, s.CallNanoseconds = number(f.calls, d), number(f.bytes, d), number(f.nanoseconds, d)
	return s
}
