// SPDX-License-Identifier: Apache-2.0

// Package otlp sends windows as OpenTelemetry profiles, and refused allocations as
// logs, over gRPC or HTTP.
//
// The profiles signal is in development and its messages change: OTLP 1.10 renumbered the
// fields of Sample, and a receiver of the other version answers OK and stores nothing.
// This is the version of Pyroscope 1.21 and of the collector 0.164 (module
// profiles/v1development v0.3.0). The encoding is our own, so that an upgrade of a
// library cannot change it unnoticed.
//
// Attributes that distinguish series are those of samples and not of the resource: newer
// senders and receivers write resource attributes in a way that Pyroscope 1.21 loses, and
// it refuses a profile with service.name in both places.
package otlp

import (
	collector "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	profiles "go.opentelemetry.io/proto/otlp/profiles/v1development"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
)

// maxBytes of a request before compression: gRPC servers accept 4 MiB by default
// (google.golang.org/grpc, MaxRecvMsgSize).
const maxBytes = 3 << 20

// scopeName identifies the producer of the profiles.
const scopeName = "github.com/gpu-gadgets/gpu-gadgets"

// Encoder makes requests of windows. It must not be used concurrently.
type Encoder struct {
	Series series.Config
	// Levels are sent as well.
	Levels series.Levels

	names *dictionary // of earlier requests
}

// Profiles makes no request for a window without rows. The same window gives the same
// bytes.
func (e *Encoder) Profiles(w window.Window) []*collector.ExportProfilesServiceRequest {
	return e.split(w, e.Series.Group(w.Rows))
}

// split splits a request that is too large.
func (e *Encoder) split(w window.Window, all []series.Series) []*collector.ExportProfilesServiceRequest {
	n := 0
	for _, s := range all {
		n += len(s.Rows)
	}
	if n == 0 {
		return nil
	}
	request := e.encode(w, all)
	size := proto.Size(request)
	if n == 1 || size <= maxBytes {
		return []*collector.ExportProfilesServiceRequest{request}
	}
	// Parts repeat common strings, so they are larger than their share.
	parts := min(n, size*3/2/maxBytes+1)
	var requests []*collector.ExportProfilesServiceRequest
	for left := n; left > 0; parts-- {
		share := (left + parts - 1) / parts
		var part []series.Series
		part, all = cut(all, share)
		requests = append(requests, e.split(w, part)...)
		left -= share
	}
	return requests
}

// cut returns the first n rows.
func cut(all []series.Series, n int) (first, rest []series.Series) {
	for _, s := range all {
		k := min(n, len(s.Rows))
		n -= k
		if k > 0 {
			first = append(first, series.Series{Key: s.Key, Rows: s.Rows[:k]})
		}
		if k < len(s.Rows) {
			rest = append(rest, series.Series{Key: s.Key, Rows: s.Rows[k:]})
		}
	}
	return first, rest
}

func (e *Encoder) encode(w window.Window, all []series.Series) *collector.ExportProfilesServiceRequest {
	if e.names == nil || e.names.full() {
		e.names = newDictionary()
	} else {
		e.names.begin()
	}
	d := e.names
	stacks := make([][]int32, len(all))
	for i, s := range all {
		stacks[i] = make([]int32, len(s.Rows))
		for j := range s.Rows {
			stacks[i][j] = d.number(s.Rows[j].Stack)
		}
	}
	scope := &profiles.ScopeProfiles{Scope: &common.InstrumentationScope{Name: scopeName}}
	for _, shape := range series.Shapes(w.Subject, w.Period, e.Levels) {
		for _, c := range shape.Columns {
			p := &profiles.Profile{
				SampleType:   &profiles.ValueType{TypeStrindex: d.text(c.Type), UnitStrindex: d.text(c.Unit)},
				TimeUnixNano: uint64(w.Start.UnixNano()), DurationNano: uint64(max(0, w.End.Sub(w.Start).Nanoseconds())),
				// Pyroscope reads the profile's name from here.
				PeriodType: &profiles.ValueType{TypeStrindex: d.text(shape.Name), UnitStrindex: d.text(shape.PeriodUnit)},
				Period:     shape.Period,
			}
			for i, s := range all {
				attributes := d.seriesAttributes(s.Key)
				for j := range s.Rows {
					v := s.Rows[j].Get(c.Value)
					if v == 0 {
						continue
					}
					sample := d.slabs.samples.one()
					sample.StackIndex, sample.LinkIndex = d.placeStack(stacks[i][j]), d.link(s.Rows[j].Span)
					sample.AttributeIndices, sample.Values = attributes, d.slabs.values.take(1)
					sample.Values[0] = v
					p.Samples = append(p.Samples, sample)
				}
			}
			if len(p.Samples) > 0 {
				scope.Profiles = append(scope.Profiles, p)
			}
		}
	}
	return &collector.ExportProfilesServiceRequest{
		ResourceProfiles: []*profiles.ResourceProfiles{{Resource: &resource.Resource{}, ScopeProfiles: []*profiles.ScopeProfiles{scope}}},
		Dictionary:       d.out,
	}
}

type attribute struct{ key, value string }

// attributesOf returns the attributes that distinguish series, named by the semantic
// conventions (v1.43) if they define them.
func attributesOf(k series.Key) (all []attribute) {
	for _, a := range []attribute{
		{"service.name", k.Service}, {"k8s.cluster.name", k.Cluster}, {"k8s.node.name", k.Node},
		{"k8s.namespace.name", k.Namespace}, {"k8s.pod.name", k.Pod}, {"k8s.container.name", k.Container},
		{"hw.id", k.GPU}, {"cuda.device", k.Device}, {"cuda.memory.kind", k.Kind}, {"process.pid", k.PID},
	} {
		if a.value != "" {
			all = append(all, a)
		}
	}
	for _, l := range labels.WithValue(k.Labels) {
		all = append(all, attribute{l[0], l[1]})
	}
	return all
}
