// SPDX-License-Identifier: Apache-2.0

package pprof

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	pprofv1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	"github.com/klauspost/compress/gzip" // half the time of the standard library's

	gpu "github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Column is one sample type: what it is called and which value it is.
type Column struct {
	Type, Unit string
	Value      gpu.Type
}

// Window is a stretch of time for a server that stores profiles.
type Window struct {
	Start    time.Time
	Duration time.Duration
	Columns  []Column
	// PeriodType may be empty: some types of profile are known by having none.
	PeriodType, PeriodUnit string
	Period                 int64
	Rows                   []gpu.Row
}

// WindowEncoder makes profiles of windows with the messages that Pyroscope's module
// has of the format: google/pprof, which Encode uses, looks up every text of a file
// for each file. What most windows have in common is kept: the names, the arrays, and
// the compressor, which is larger than most windows. The zero value is ready; it must
// not be used concurrently.
type WindowEncoder struct {
	names names
	out   pprofv1.Profile

	// What out is made of, and what becomes of it.
	samples   []pprofv1.Sample
	values    []int64
	locations []uint64
	raw       []byte
	zip       *gzip.Writer
}

// level makes files as large as the library of pprof does, which has the default, in
// half the time.
const level = 5

// Encode writes a window gzipped. Its samples have no label but the span's: a server
// makes a series of each value of any other. The same window gives the same bytes.
// size is that before compression, which servers limit.
func (e *WindowEncoder) Encode(to io.Writer, w Window) (size int, err error) {
	e.build(w)
	size = e.out.SizeVT()
	e.raw = slices.Grow(e.raw[:0], size)[:size]
	if _, err := e.out.MarshalToSizedBufferVT(e.raw); err != nil {
		return 0, fmt.Errorf("build pprof: %w", err)
	}
	if e.zip == nil {
		e.zip, _ = gzip.NewWriterLevel(to, level) // a level that there is
	} else {
		e.zip.Reset(to)
	}
	_, err = e.zip.Write(e.raw)
	if err := errors.Join(err, e.zip.Close()); err != nil {
		return 0, fmt.Errorf("write pprof: %w", err)
	}
	return size, nil
}

func (e *WindowEncoder) build(w Window) {
	p := &e.out
	e.names.begin(p)
	valueType := func(name, unit string) *pprofv1.ValueType {
		return &pprofv1.ValueType{Type: e.names.text(name), Unit: e.names.text(unit)}
	}
	p.TimeNanos, p.DurationNanos = w.Start.UnixNano(), w.Duration.Nanoseconds()
	p.PeriodType, p.Period = nil, 0
	if w.PeriodType != "" {
		p.PeriodType, p.Period = valueType(w.PeriodType, w.PeriodUnit), w.Period
	}
	p.SampleType, p.Sample = p.SampleType[:0], p.Sample[:0]
	for _, c := range w.Columns {
		p.SampleType = append(p.SampleType, valueType(c.Type, c.Unit))
	}
	if len(e.samples) < len(w.Rows) {
		e.samples = make([]pprofv1.Sample, len(w.Rows))
	}
	e.values, e.locations = e.values[:0], e.locations[:0]
	for i := range w.Rows {
		r, s := &w.Rows[i], &e.samples[i]
		values, locations := len(e.values), len(e.locations)
		for _, c := range w.Columns {
			e.values = append(e.values, r.Get(c.Value))
		}
		e.locations = e.names.appendStack(e.locations, r.Stack)
		// Where an array has moved, the earlier samples are in the old one.
		s.Value, s.LocationId, s.Label = e.values[values:], e.locations[locations:], nil
		if r.Span != 0 {
			s.Label = []*pprofv1.Label{{Key: e.names.text(LabelSpan), Str: e.names.text(r.Span.String())}}
		}
		p.Sample = append(p.Sample, s)
	}
}
