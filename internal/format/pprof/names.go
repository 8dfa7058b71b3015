// SPDX-License-Identifier: Apache-2.0

package pprof

import (
	"math"

	pprofv1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// names are those of profiles: texts, functions, mappings and locations. Each
// is looked up once and kept; a profile that names one gives it the next place in its
// own tables. So a profile has what its samples need and nothing else.
type names struct {
	profile uint64 // counts them
	out     *pprofv1.Profile

	numbers   stack.Numbers
	locations []*location // by the frame's number
	texts     map[string]*text
	functions map[[3]*text]*function
	mappings  map[[2]*text]*mapping
}

// maxTexts bounds what is kept: ids of spans are texts, too.
const maxTexts = 256 << 10

// text, function, mapping and location have their place in a profile if in is its
// number, and an older one's otherwise.
type text struct {
	in    uint64
	index int64
	value string
}

type function struct {
	in                 uint64
	name, system, file *text
	out                pprofv1.Function
}

type mapping struct {
	in            uint64
	file, buildID *text
	out           pprofv1.Mapping
}

type location struct {
	in       uint64
	function *function
	mapping  *mapping // nil: none
	line     pprofv1.Line
	out      pprofv1.Location
}

// begin gives the tables of a profile what the next profile has. Those of the one
// before are overwritten.
func (n *names) begin(out *pprofv1.Profile) {
	if n.texts == nil || n.numbers.Full() || len(n.texts) >= maxTexts {
		n.numbers, n.locations = stack.Numbers{}, nil
		n.texts, n.functions, n.mappings = map[string]*text{}, map[[3]*text]*function{}, map[[2]*text]*mapping{}
	}
	n.profile++
	n.out = out
	out.StringTable, out.Function, out.Mapping, out.Location = out.StringTable[:0], out.Function[:0], out.Mapping[:0], out.Location[:0]
	n.text("") // has to be the first one
}

func (n *names) text(value string) int64 { return n.placeText(n.known(value)) }

func (n *names) known(value string) *text {
	t, ok := n.texts[value]
	if !ok {
		t = &text{value: value}
		n.texts[value] = t
	}
	return t
}

func (n *names) placeText(t *text) int64 {
	if t.in != n.profile {
		t.in, t.index = n.profile, int64(len(n.out.StringTable))
		n.out.StringTable = append(n.out.StringTable, t.value)
	}
	return t.index
}

// appendStack appends the ids of a stack's locations, leaf first.
func (n *names) appendStack(to []uint64, s stack.Stack) []uint64 {
	for _, f := range n.numbers.Frames(n.numbers.Stack(s)) {
		for int(f) >= len(n.locations) {
			n.locations = append(n.locations, n.newLocation(n.numbers.Frame(int32(len(n.locations)))))
		}
		to = append(to, n.placeLocation(n.locations[f]))
	}
	return to
}

func (n *names) newLocation(f stack.Frame) *location {
	k := [...]*text{n.known(valid(f.Function)), n.known(systemName(f)), n.known(valid(f.File))}
	fn, ok := n.functions[k]
	if !ok {
		fn = &function{name: k[0], system: k[1], file: k[2]}
		n.functions[k] = fn
	}
	l := &location{function: fn}
	l.out.Address, l.line.Line = f.Address, int64(f.Line)
	l.out.Line = []*pprofv1.Line{&l.line}
	if file := mappingOf(f); file != "" {
		l.mapping = n.newMapping(file, f.BuildID)
	}
	return l
}

func (n *names) newMapping(file, buildID string) *mapping {
	k := [...]*text{n.known(valid(file)), n.known(buildID)}
	m, ok := n.mappings[k]
	if !ok {
		m = &mapping{file: k[0], buildID: k[1]}
		m.out.MemoryLimit = math.MaxInt64
		m.out.HasFunctions, m.out.HasFilenames, m.out.HasLineNumbers, m.out.HasInlineFrames = true, true, true, true
		n.mappings[k] = m
	}
	return m
}

func (n *names) placeLocation(l *location) uint64 {
	if l.in != n.profile {
		l.in = n.profile
		l.line.FunctionId = n.placeFunction(l.function)
		if l.mapping != nil {
			l.out.MappingId = n.placeMapping(l.mapping)
		}
		n.out.Location = append(n.out.Location, &l.out)
		l.out.Id = uint64(len(n.out.Location))
	}
	return l.out.Id
}

func (n *names) placeFunction(f *function) uint64 {
	if f.in != n.profile {
		f.in = n.profile
		f.out.Name, f.out.SystemName, f.out.Filename = n.placeText(f.name), n.placeText(f.system), n.placeText(f.file)
		n.out.Function = append(n.out.Function, &f.out)
		f.out.Id = uint64(len(n.out.Function))
	}
	return f.out.Id
}

func (n *names) placeMapping(m *mapping) uint64 {
	if m.in != n.profile {
		m.in = n.profile
		m.out.Filename, m.out.BuildId = n.placeText(m.file), n.placeText(m.buildID)
		n.out.Mapping = append(n.out.Mapping, &m.out)
		m.out.Id = uint64(len(n.out.Mapping))
	}
	return m.out.Id
}
