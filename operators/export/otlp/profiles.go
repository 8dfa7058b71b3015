// SPDX-License-Identifier: Apache-2.0

// Package otlp sends windows as OpenTelemetry profiles, and refused allocations as
// logs, over gRPC or HTTP.
//
// The profiles signal is in development and its messages change: OTLP 1.10 renumbered
// the fields of Sample, and a receiver of the other version answers OK and stores
// nothing. This is the version of Pyroscope 1.21 and of the collector 0.164 (module
// profiles/v1development v0.3.0), encoded by ourselves so that no library's upgrade
// changes it unnoticed.
//
// What tells series apart is in the attributes of samples and not in the resource:
// newer senders and receivers write resource attributes in a way that Pyroscope 1.21
// loses, and with service.name in both places it refuses the profile.
package otlp

import (
	"encoding/binary"
	"strings"

	collector "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	profiles "go.opentelemetry.io/proto/otlp/profiles/v1development"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/operators/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/operators/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/stack"
)

// maxBytes of a request before compression: gRPC servers take 4 MiB unless told
// otherwise (google.golang.org/grpc, MaxRecvMsgSize).
const maxBytes = 3 << 20

// scopeName is who made the profiles.
const scopeName = "github.com/gpu-gadgets/gpu-gadgets"

// Encoder makes requests of windows.
type Encoder struct {
	Series series.Config
	// Levels sends what is in use as well.
	Levels bool
}

// Profiles makes no request of a window without rows. The same window gives the same
// bytes.
func (e Encoder) Profiles(w window.Window) []*collector.ExportProfilesServiceRequest {
	return e.split(w, e.Series.Group(w.Rows))
}

// split makes several requests of what is too large for one.
func (e Encoder) split(w window.Window, all []series.Series) []*collector.ExportProfilesServiceRequest {
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
	// Parts have strings in common, so they are larger than the share.
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

// cut takes the first n rows.
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

func (e Encoder) encode(w window.Window, all []series.Series) *collector.ExportProfilesServiceRequest {
	d := newDictionary()
	scope := &profiles.ScopeProfiles{Scope: &common.InstrumentationScope{Name: scopeName}}
	for _, shape := range series.Shapes(w.Subject, w.Period, e.Levels) {
		for _, c := range shape.Columns {
			p := &profiles.Profile{
				SampleType:   &profiles.ValueType{TypeStrindex: d.text(c.Type), UnitStrindex: d.text(c.Unit)},
				TimeUnixNano: uint64(w.Start.UnixNano()), DurationNano: uint64(max(0, w.End.Sub(w.Start).Nanoseconds())),
				// Pyroscope takes the profile's name from here.
				PeriodType: &profiles.ValueType{TypeStrindex: d.text(shape.Name), UnitStrindex: d.text(shape.PeriodUnit)},
				Period:     shape.Period,
			}
			for _, s := range all {
				attributes := d.attributes(s.Key)
				for _, r := range s.Rows {
					if v := r.Get(c.Value); v != 0 {
						p.Samples = append(p.Samples, &profiles.Sample{
							StackIndex: d.stack(r.Stack), AttributeIndices: attributes, Values: []int64{v}, LinkIndex: d.link(r.Span),
						})
					}
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

// dictionary has each thing once; index 0 of every table means none.
type dictionary struct {
	out       *profiles.ProfilesDictionary
	texts     map[string]int32
	values    map[attribute]int32
	functions map[[2]string]int32
	mappings  map[[2]string]int32
	locations map[stack.Frame]int32
	// stacks by where they are, which rows of one stack share, and then by content.
	stacks  map[place]int32
	links   map[profile.Span]int32
	stackID map[uint64]int32
}

type place struct {
	first *stack.Frame
	depth int
}

type attribute struct{ key, value string }

func newDictionary() *dictionary {
	return &dictionary{
		out: &profiles.ProfilesDictionary{
			MappingTable: []*profiles.Mapping{{}}, LocationTable: []*profiles.Location{{}}, FunctionTable: []*profiles.Function{{}},
			LinkTable: []*profiles.Link{{}}, StringTable: []string{""}, AttributeTable: []*profiles.KeyValueAndUnit{{}},
			StackTable: []*profiles.Stack{{}},
		},
		texts: map[string]int32{"": 0}, values: map[attribute]int32{}, functions: map[[2]string]int32{},
		mappings: map[[2]string]int32{}, links: map[profile.Span]int32{0: 0}, locations: map[stack.Frame]int32{},
		stacks: map[place]int32{}, stackID: map[uint64]int32{},
	}
}

func (d *dictionary) text(s string) int32 {
	// Names of traced programs can be any bytes; protobuf refuses those.
	s = valid(s)
	i, ok := d.texts[s]
	if !ok {
		i = int32(len(d.out.StringTable))
		d.texts[s] = i
		d.out.StringTable = append(d.out.StringTable, s)
	}
	return i
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (d *dictionary) attribute(key, value string) int32 {
	a := attribute{key, value}
	i, ok := d.values[a]
	if !ok {
		i = int32(len(d.out.AttributeTable))
		d.values[a] = i
		d.out.AttributeTable = append(d.out.AttributeTable, &profiles.KeyValueAndUnit{KeyStrindex: d.text(key), Value: text(value)})
	}
	return i
}

func (d *dictionary) attributes(k series.Key) (indices []int32) {
	for _, a := range attributesOf(k) {
		indices = append(indices, d.attribute(a.key, a.value))
	}
	return indices
}

// attributesOf names what tells series apart by the semantic conventions (v1.43),
// where they have a name for it.
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
	return all
}

// link names a span and not its trace: Pyroscope 1.21 makes a series of each trace.
func (d *dictionary) link(s profile.Span) int32 {
	i, ok := d.links[s]
	if !ok {
		i = int32(len(d.out.LinkTable))
		d.links[s] = i
		d.out.LinkTable = append(d.out.LinkTable, &profiles.Link{SpanId: binary.BigEndian.AppendUint64(nil, uint64(s))})
	}
	return i
}

func (d *dictionary) stack(s stack.Stack) int32 {
	if len(s) == 0 {
		s = stack.UnknownStack()
	}
	at := place{&s[0], len(s)}
	if i, ok := d.stacks[at]; ok {
		return i
	}
	id := s.ID()
	i, ok := d.stackID[id]
	if !ok {
		locations := make([]int32, len(s))
		for n, f := range s {
			locations[n] = d.location(f)
		}
		i = int32(len(d.out.StackTable))
		d.stackID[id] = i
		d.out.StackTable = append(d.out.StackTable, &profiles.Stack{LocationIndices: locations})
	}
	d.stacks[at] = i
	return i
}

func (d *dictionary) location(f stack.Frame) int32 {
	i, ok := d.locations[f]
	if ok {
		return i
	}
	i = int32(len(d.out.LocationTable))
	d.locations[f] = i
	l := &profiles.Location{
		Address: f.Address,
		Lines:   []*profiles.Line{{FunctionIndex: d.function(f), Line: int64(f.Line)}},
	}
	if f.Kind == stack.KindNative && f.File != "" {
		l.MappingIndex = d.mapping(f)
	}
	// There is no value for GPU code, and none for what is not known.
	switch f.Kind {
	case stack.KindPython:
		l.AttributeIndices = []int32{d.attribute("profile.frame.type", "cpython")}
	case stack.KindNative, stack.KindTrampoline:
		l.AttributeIndices = []int32{d.attribute("profile.frame.type", "native")}
	}
	d.out.LocationTable = append(d.out.LocationTable, l)
	return i
}

func (d *dictionary) function(f stack.Frame) int32 {
	k := [2]string{f.Function, f.File}
	i, ok := d.functions[k]
	if !ok {
		i = int32(len(d.out.FunctionTable))
		d.functions[k] = i
		d.out.FunctionTable = append(d.out.FunctionTable, &profiles.Function{
			NameStrindex: d.text(f.Function), FilenameStrindex: d.text(f.File),
		})
	}
	return i
}

func (d *dictionary) mapping(f stack.Frame) int32 {
	k := [2]string{f.File, f.BuildID}
	i, ok := d.mappings[k]
	if !ok {
		i = int32(len(d.out.MappingTable))
		d.mappings[k] = i
		m := &profiles.Mapping{FilenameStrindex: d.text(f.File)}
		if f.BuildID != "" {
			m.AttributeIndices = []int32{d.attribute("process.executable.build_id.gnu", f.BuildID)}
		}
		d.out.MappingTable = append(d.out.MappingTable, m)
	}
	return i
}
