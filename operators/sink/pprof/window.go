// SPDX-License-Identifier: Apache-2.0

package pprof

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/pprof/profile"

	gpu "github.com/gpu-gadgets/gpu-gadgets/operators/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/stack"
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

// WindowEncoder keeps the compressor, which is larger than most windows. The zero
// value is ready; it must not be used concurrently.
type WindowEncoder struct{ zip *gzip.Writer }

// Encode writes a window gzipped, without any labels of samples: a server makes a
// series of each of their values.
func (e *WindowEncoder) Encode(to io.Writer, w Window) error {
	b := builder{
		out:       &profile.Profile{TimeNanos: w.Start.UnixNano(), DurationNanos: w.Duration.Nanoseconds()},
		functions: map[functionKey]*profile.Function{},
		locations: map[stack.Frame]*profile.Location{},
		mappings:  map[mappingKey]*profile.Mapping{},
	}
	if w.PeriodType != "" {
		b.out.PeriodType = &profile.ValueType{Type: w.PeriodType, Unit: w.PeriodUnit}
		b.out.Period = w.Period
	}
	for _, c := range w.Columns {
		b.out.SampleType = append(b.out.SampleType, &profile.ValueType{Type: c.Type, Unit: c.Unit})
	}
	for _, r := range w.Rows {
		s := &profile.Sample{Value: make([]int64, 0, len(w.Columns)), Location: make([]*profile.Location, 0, len(r.Stack))}
		for _, c := range w.Columns {
			s.Value = append(s.Value, r.Get(c.Value))
		}
		for _, f := range r.Stack {
			s.Location = append(s.Location, b.location(f))
		}
		b.out.Sample = append(b.out.Sample, s)
	}
	if err := b.out.CheckValid(); err != nil {
		return fmt.Errorf("build pprof: %w", err)
	}
	if e.zip == nil {
		e.zip = gzip.NewWriter(to)
	} else {
		e.zip.Reset(to)
	}
	if err := errors.Join(b.out.WriteUncompressed(e.zip), e.zip.Close()); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	return nil
}
