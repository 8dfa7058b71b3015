// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"encoding/binary"
	"strings"

	profiles "go.opentelemetry.io/proto/otlp/profiles/v1development"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// dictionary has each text, frame and stack of a request once; index 0 of every table
// means none. Lookups are kept between requests: a request that uses a text or a frame
// only assigns it the next index in its tables.
type dictionary struct {
	request uint64 // counts requests
	out     *profiles.ProfilesDictionary
	links   map[profile.Span]int32
	slabs   slabs

	numbers    stack.Numbers
	stacks     []entry     // by number
	locations  []*location // by the frame's number
	texts      map[string]*text
	attributes map[[2]*text]*pair
	functions  map[[2]*text]*pair
	mappings   map[[2]*text]*pair
}

// maxTexts bounds the texts that are kept.
const maxTexts = 256 << 10

// entry is an index into a table of request in; for other requests it is invalid.
type entry struct {
	in    uint64
	index int32
}

type text struct {
	entry
	value string
}

// pair is an attribute (key, value), a function (name, file) or a mapping (file,
// build id).
type pair struct {
	entry
	first, second *text
}

type location struct {
	entry
	address   uint64
	line      int64
	function  *pair
	mapping   *pair // nil: none
	frameType *pair // nil: none
}

// slabs are the messages of a request: many are one allocation.
type slabs struct {
	samples   slab[profiles.Sample]
	stacks    slab[profiles.Stack]
	locations slab[profiles.Location]
	lines     slab[profiles.Line]
	functions slab[profiles.Function]
	values    slab[int64]
	indices   slab[int32]
	ofLines   slab[*profiles.Line]
}

type slab[T any] struct{ free []T }

func (s *slab[T]) take(n int) []T {
	const many = 256
	if len(s.free) < n {
		s.free = make([]T, max(n, many))
	}
	taken := s.free[:n:n]
	s.free = s.free[n:]
	return taken
}

func (s *slab[T]) one() *T { return &s.take(1)[0] }

func newDictionary() *dictionary {
	d := &dictionary{
		texts: map[string]*text{}, attributes: map[[2]*text]*pair{}, functions: map[[2]*text]*pair{}, mappings: map[[2]*text]*pair{},
	}
	d.begin()
	return d
}

// full reports whether it should be replaced.
func (d *dictionary) full() bool { return d.numbers.Full() || len(d.texts) >= maxTexts }

// begin makes the tables of the next request.
func (d *dictionary) begin() {
	d.request++
	d.slabs, d.links = slabs{}, map[profile.Span]int32{0: 0}
	d.out = &profiles.ProfilesDictionary{
		MappingTable: []*profiles.Mapping{{}}, LocationTable: []*profiles.Location{{}}, FunctionTable: []*profiles.Function{{}},
		LinkTable: []*profiles.Link{{}}, AttributeTable: []*profiles.KeyValueAndUnit{{}}, StackTable: []*profiles.Stack{{}},
	}
	d.text("")
}

// place reports whether an entry is in the tables; if not, the caller appends it at index
// length.
func (d *dictionary) place(e *entry, length int) (isThere bool) {
	if e.in == d.request {
		return true
	}
	e.in, e.index = d.request, int32(length)
	return false
}

func (d *dictionary) text(s string) int32 { return d.placeText(d.known(s)) }

func (d *dictionary) known(s string) *text {
	t, ok := d.texts[s]
	if !ok {
		t = &text{value: valid(s)}
		if t.value != s {
			t = d.known(t.value)
		}
		d.texts[s] = t
	}
	return t
}

// valid: names of traced programs can be any bytes, and protobuf refuses invalid UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (d *dictionary) placeText(t *text) int32 {
	if !d.place(&t.entry, len(d.out.StringTable)) {
		d.out.StringTable = append(d.out.StringTable, t.value)
	}
	return t.index
}

// keep finds the entry that two texts identify.
func (d *dictionary) keep(in map[[2]*text]*pair, first, second string) *pair {
	k := [2]*text{d.known(first), d.known(second)}
	p, ok := in[k]
	if !ok {
		p = &pair{first: k[0], second: k[1]}
		in[k] = p
	}
	return p
}

func (d *dictionary) attribute(key, value string) int32 {
	return d.placeAttribute(d.keep(d.attributes, key, value))
}

func (d *dictionary) placeAttribute(p *pair) int32 {
	if !d.place(&p.entry, len(d.out.AttributeTable)) {
		d.out.AttributeTable = append(d.out.AttributeTable, &profiles.KeyValueAndUnit{
			KeyStrindex: d.placeText(p.first), Value: anyText(p.second.value),
		})
	}
	return p.index
}

func (d *dictionary) seriesAttributes(k series.Key) (indices []int32) {
	for _, a := range attributesOf(k) {
		indices = append(indices, d.attribute(a.key, a.value))
	}
	return indices
}

// link has a span and not its trace, because Pyroscope 1.21 creates a series for each trace.
func (d *dictionary) link(s profile.Span) int32 {
	i, ok := d.links[s]
	if !ok {
		i = int32(len(d.out.LinkTable))
		d.links[s] = i
		d.out.LinkTable = append(d.out.LinkTable, &profiles.Link{SpanId: binary.BigEndian.AppendUint64(nil, uint64(s))})
	}
	return i
}

// number assigns a number to a stack.
func (d *dictionary) number(s stack.Stack) int32 {
	if len(s) == 0 {
		s = stack.UnknownStack()
	}
	n := d.numbers.Stack(s)
	for int(n) >= len(d.stacks) {
		d.stacks = append(d.stacks, entry{})
	}
	return n
}

func (d *dictionary) placeStack(number int32) int32 {
	e := &d.stacks[number]
	if !d.place(e, len(d.out.StackTable)) {
		frames := d.numbers.Frames(number)
		s := d.slabs.stacks.one()
		s.LocationIndices = d.slabs.indices.take(len(frames))
		for i, f := range frames {
			s.LocationIndices[i] = d.placeLocation(f)
		}
		d.out.StackTable = append(d.out.StackTable, s)
	}
	return e.index
}

func (d *dictionary) placeLocation(frame int32) int32 {
	for int(frame) >= len(d.locations) {
		d.locations = append(d.locations, d.newLocation(d.numbers.Frame(int32(len(d.locations)))))
	}
	known := d.locations[frame]
	if d.place(&known.entry, len(d.out.LocationTable)) {
		return known.index
	}
	line, l := d.slabs.lines.one(), d.slabs.locations.one()
	line.FunctionIndex, line.Line = d.placeFunction(known.function), known.line
	l.Address, l.Lines = known.address, d.slabs.ofLines.take(1)
	l.Lines[0] = line
	if known.mapping != nil {
		l.MappingIndex = d.placeMapping(known.mapping)
	}
	if known.frameType != nil {
		l.AttributeIndices = d.slabs.indices.take(1)
		l.AttributeIndices[0] = d.placeAttribute(known.frameType)
	}
	d.out.LocationTable = append(d.out.LocationTable, l)
	return known.index
}

func (d *dictionary) newLocation(f stack.Frame) *location {
	l := &location{address: f.Address, line: int64(f.Line), function: d.keep(d.functions, f.Function, f.File)}
	if f.Kind == stack.KindNative && f.File != "" {
		l.mapping = d.keep(d.mappings, f.File, f.BuildID)
	}
	if t := frameType(f.Kind); t != "" {
		l.frameType = d.keep(d.attributes, "profile.frame.type", t)
	}
	return l
}

// frameType is the value of profile.frame.type: those of OpenTelemetry's semantic
// conventions, where "kernel" is the operating system's, and our own for GPU code, which
// they do not define. "" for frames that represent unknown code.
func frameType(k stack.Kind) string {
	switch k {
	case stack.KindPython:
		return "cpython"
	case stack.KindNative, stack.KindTrampoline:
		return "native"
	case stack.KindKernel:
		return "cuda"
	}
	return ""
}

func (d *dictionary) placeFunction(p *pair) int32 {
	if !d.place(&p.entry, len(d.out.FunctionTable)) {
		f := d.slabs.functions.one()
		f.NameStrindex, f.FilenameStrindex = d.placeText(p.first), d.placeText(p.second)
		d.out.FunctionTable = append(d.out.FunctionTable, f)
	}
	return p.index
}

func (d *dictionary) placeMapping(p *pair) int32 {
	if !d.place(&p.entry, len(d.out.MappingTable)) {
		m := &profiles.Mapping{FilenameStrindex: d.placeText(p.first)}
		if id := p.second.value; id != "" {
			m.AttributeIndices = []int32{d.attribute("process.executable.build_id.gnu", id)}
		}
		d.out.MappingTable = append(d.out.MappingTable, m)
	}
	return p.index
}
