// SPDX-License-Identifier: Apache-2.0

// Package pprof writes a profile in pprof's format and reads it back, so that
// `go tool pprof`, every viewer that reads heap or CPU profiles, and our own diff
// can use it. The sample types of memory are those of a Go heap profile, those of
// time are samples and cpu or wall nanoseconds; labels say which process, thread,
// container, kind of memory and device a sample belongs to.
//
// What the format cannot hold is lost on the way back: the peak of each row for itself, and
// how much of what was freed was freed by the end of the process.
package pprof

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	gpu "github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Encode writes p gzipped. The same profile gives the same bytes.
func Encode(w io.Writer, p *gpu.Profile) error {
	out, err := build(p)
	if err != nil {
		return err
	}
	if err := out.Write(w); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	return nil
}

func build(p *gpu.Profile) (*profile.Profile, error) {
	b := builder{
		out: &profile.Profile{
			DefaultSampleType: p.Subject.Default().String(),
			// Every allocation is counted; nothing is scaled up.
			PeriodType: &profile.ValueType{Type: "space", Unit: "bytes"},
			Period:     1,
		},
		types:     p.Types(),
		functions: map[functionKey]*profile.Function{},
		locations: map[stack.Frame]*profile.Location{},
		mappings:  map[mappingKey]*profile.Mapping{},
	}
	if !p.Time.IsZero() {
		b.out.TimeNanos = p.Time.UnixNano()
	}
	b.out.DurationNanos = p.Duration.Nanoseconds()
	if p.Subject != gpu.Memory {
		t := p.Subject.Default()
		b.out.PeriodType = &profile.ValueType{Type: t.String(), Unit: t.Unit()}
		b.out.Period = p.Period.Nanoseconds()
	}
	for _, t := range b.types {
		b.out.SampleType = append(b.out.SampleType, &profile.ValueType{Type: t.String(), Unit: t.Unit()})
	}
	for _, note := range p.Notes {
		b.out.Comments = append(b.out.Comments, valid(note))
	}
	for _, r := range p.Rows {
		b.sample(r)
	}
	if err := b.out.CheckValid(); err != nil {
		return nil, fmt.Errorf("build pprof: %w", err)
	}
	return b.out, nil
}

// LabelSpan is the label of a sample by which Grafana's traces find profiles
// (Pyroscope's pkg/pprof, SpanIDLabelName).
const LabelSpan = "span_id"

type functionKey struct{ name, file string }

type mappingKey struct{ file, buildID string }

type builder struct {
	out       *profile.Profile
	types     []gpu.Type
	functions map[functionKey]*profile.Function
	locations map[stack.Frame]*profile.Location
	mappings  map[mappingKey]*profile.Mapping
}

func (b *builder) sample(r gpu.Row) {
	s := &profile.Sample{
		Label:    map[string][]string{},
		NumLabel: map[string][]int64{"pid": {int64(r.Process.PID)}},
	}
	if r.Thread != 0 {
		s.NumLabel["tid"] = []int64{int64(r.Thread)}
	}
	for _, t := range b.types {
		s.Value = append(s.Value, r.Get(t))
	}
	for _, f := range r.Stack {
		s.Location = append(s.Location, b.location(f))
	}
	device := ""
	switch {
	case r.Device >= 0:
		device = strconv.Itoa(int(r.Device))
	case r.Device == gpu.UnknownDevice && r.Kind != "":
		device = "unknown" // memory and calls have one
	}
	for name, value := range map[string]string{
		"comm":      r.Process.Comm,
		"namespace": r.Process.Namespace,
		"pod":       r.Process.Pod,
		"container": r.Process.Container,
		"kind":      r.Kind,
		"device":    device,
		LabelSpan:   r.Span.String(),
	} {
		if value != "" {
			s.Label[name] = []string{valid(value)} // the kernel cuts names of processes within letters
		}
	}
	for _, l := range labels.WithValue(r.Process.Labels) {
		s.Label[l[0]] = []string{valid(l[1])}
	}
	b.out.Sample = append(b.out.Sample, s)
}

func (b *builder) location(f stack.Frame) *profile.Location {
	if l, ok := b.locations[f]; ok {
		return l
	}
	l := b.newLocation(f)
	b.locations[f] = l
	return l
}

func (b *builder) newLocation(f stack.Frame) *profile.Location {
	l := &profile.Location{
		ID:      uint64(len(b.out.Location)) + 1,
		Address: f.Address,
		Line:    []profile.Line{{Function: b.function(f), Line: int64(f.Line)}},
	}
	if file := mappingOf(f); file != "" {
		l.Mapping = b.mapping(mappingKey{file, f.BuildID})
	}
	b.out.Location = append(b.out.Location, l)
	return l
}

func (b *builder) function(f stack.Frame) *profile.Function {
	k := functionKey{f.Function, f.File}
	if fn, ok := b.functions[k]; ok {
		return fn
	}
	fn := &profile.Function{
		ID:       uint64(len(b.out.Function)) + 1,
		Name:     valid(f.Function),
		Filename: valid(f.File),
	}
	fn.SystemName = systemName(f)
	b.functions[k] = fn
	b.out.Function = append(b.out.Function, fn)
	return fn
}

func (b *builder) mapping(k mappingKey) *profile.Mapping {
	if m, ok := b.mappings[k]; ok {
		return m
	}
	m := &profile.Mapping{
		ID: uint64(len(b.out.Mapping)) + 1,
		// Addresses are as linked, so the file lies at 0 and is as long
		// as it needs to be.
		Limit:   math.MaxInt64,
		File:    valid(k.file),
		BuildID: k.buildID,
		// Readers take the names as final.
		HasFunctions:    true,
		HasFilenames:    true,
		HasLineNumbers:  true,
		HasInlineFrames: true,
	}
	b.mappings[k] = m
	b.out.Mapping = append(b.out.Mapping, m)
	return m
}

// gpuMapping is that of kernels, in the brackets that mappings without a file have.
const gpuMapping = "[gpu]"

// mappingOf is the file that the frame's code is of, for the machine: a library, or the
// GPU's code. Python has none.
func mappingOf(f stack.Frame) string {
	switch f.Kind {
	case stack.KindNative:
		return f.File
	case stack.KindKernel:
		return gpuMapping
	}
	return ""
}

// systemName differs from the name of a function that is not C++: where the two are equal, pprof
// strips <…> and (…), which is right for a template and not for <module>.
func systemName(f stack.Frame) string {
	if f.Kind == stack.KindNative || f.Kind == stack.KindKernel {
		return valid(f.Function)
	}
	return f.Kind.String() + ":" + valid(f.Function)
}

// valid is for names of traced programs, which can be any bytes: not every reader that
// reads the format takes those.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Decode reads what Encode wrote. Other pprof files fail unless they have all
// sample types of one of our subjects, as a heap profile has. Freed is taken to be
// what was allocated and is no longer in use.
func Decode(r io.Reader) (*gpu.Profile, error) {
	in, err := profile.Parse(r)
	if err != nil {
		return nil, fmt.Errorf("read pprof: %w", err)
	}
	var column map[gpu.Type]int
	var missing error
	var subject gpu.Subject
	for _, subject = range gpu.Subjects() {
		var err error
		if column, err = columns(in, subject); err == nil {
			break
		}
		if missing == nil {
			missing = err
		}
	}
	if column == nil {
		return nil, missing
	}

	rows := make([]gpu.Row, 0, len(in.Sample))
	for _, s := range in.Sample {
		rows = append(rows, decodeSample(s, subject, column))
	}
	p := gpu.New(time.Unix(0, in.TimeNanos), rows)
	p.Notes = in.Comments
	p.Duration = time.Duration(in.DurationNanos)
	if p.Subject = subject; subject != gpu.Memory {
		p.Period = time.Duration(in.Period)
	}
	return p, nil
}

// columns says where the values of a subject's types are.
func columns(in *profile.Profile, s gpu.Subject) (map[gpu.Type]int, error) {
	column := map[gpu.Type]int{}
	for _, t := range s.Types() {
		for i, st := range in.SampleType {
			if st.Type == t.String() && st.Unit == t.Unit() {
				column[t] = i
			}
		}
		if _, ok := column[t]; !ok {
			return nil, fmt.Errorf("read pprof: no sample type %s in %s", t, t.Unit())
		}
	}
	more := map[gpu.Subject][]gpu.Type{gpu.Memory: slices.Concat(gpu.TensorTypes(), gpu.PeakTypes(), gpu.WasteTypes()), gpu.Calls: gpu.DeviceTypes()}
	for _, t := range more[s] {
		for i, st := range in.SampleType {
			if st.Type == t.String() && st.Unit == t.Unit() {
				column[t] = i
			}
		}
	}
	return column, nil
}

// ownLabels are those of every profile; others were requested by --labels.
var ownLabels = []string{"comm", "namespace", "pod", "container", "kind", "device", LabelSpan}

func decodeSample(s *profile.Sample, subject gpu.Subject, column map[gpu.Type]int) gpu.Row {
	label := func(name string) string {
		if v := s.Label[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	r := gpu.Row{
		Process: gpu.Process{
			Comm:      label("comm"),
			Namespace: label("namespace"),
			Pod:       label("pod"),
			Container: label("container"),
		},
		Kind:   label("kind"),
		Device: gpu.UnknownDevice,
		Span:   gpu.ParseSpan(label(LabelSpan)),
	}
	var more [][2]string
	for _, name := range slices.Sorted(maps.Keys(s.Label)) {
		if value := label(name); !slices.Contains(ownLabels, name) && value != "" {
			more = append(more, [2]string{name, value})
		}
	}
	r.Process.Labels = labels.Encode(more)
	if v := s.NumLabel["pid"]; len(v) > 0 {
		r.Process.PID = uint32(v[0])
		r.Process.ID = uint64(r.Process.PID)
	}
	if d, err := strconv.ParseInt(label("device"), 10, 32); err == nil {
		r.Device = int32(d)
	}
	if v := s.NumLabel["tid"]; len(v) > 0 {
		r.Thread = uint32(v[0])
	}
	switch subject {
	case gpu.Memory:
		types := subject.Types()
		if _, has := column[gpu.TensorAllocObjects]; has && r.Layer() == gpu.Torch {
			types = gpu.TensorTypes()
		}
		r.AllocObjects, r.AllocBytes = s.Value[column[types[0]]], s.Value[column[types[1]]]
		r.InuseObjects, r.InuseBytes = s.Value[column[types[2]]], s.Value[column[types[3]]]
		r.FreedObjects, r.FreedBytes = r.AllocObjects-r.InuseObjects, r.AllocBytes-r.InuseBytes
		if at, has := column[gpu.PeakTypes()[r.Layer()]]; has {
			r.AtPeakBytes = s.Value[at]
		}
		if at, has := column[gpu.TensorRoundingSpace]; has {
			r.RoundingBytes = s.Value[at]
		}
		if at, has := column[gpu.TensorFragmentedSpace]; has {
			r.FragmentedBytes = s.Value[at]
		}
		r.PeakBytes = max(r.InuseBytes, r.AtPeakBytes)
	case gpu.Calls:
		if label("device") == "" {
			r.Device = gpu.NoDevice // older files
		}
		r.Launches, r.CopiedBytes = s.Value[column[gpu.Launches]], s.Value[column[gpu.Copied]]
		r.WaitNanoseconds, r.HostNanoseconds = s.Value[column[gpu.Wait]], s.Value[column[gpu.HostTime]]
		if at, has := column[gpu.DeviceTime]; has {
			r.DeviceNanoseconds = s.Value[at]
		}
		if at, has := column[gpu.Kernels]; has {
			r.Kernels = s.Value[at]
		}
	default:
		r.Samples, r.Nanoseconds = s.Value[column[gpu.Samples]], s.Value[column[subject.Default()]]
	}
	for _, l := range s.Location {
		// Several lines are inlined calls, innermost first.
		for _, line := range l.Line {
			r.Stack = append(r.Stack, decodeFrame(l, line))
		}
	}
	if len(r.Stack) == 0 {
		r.Stack = stack.UnknownStack()
	}
	return r
}

// decodeFrame finds the kind again, which pprof has no place for: in the mapping of native
// code, and in the system name of everything else. Files of older versions have the names.
func decodeFrame(l *profile.Location, line profile.Line) stack.Frame {
	f := stack.Frame{Kind: stack.KindPython, Line: uint32(line.Line)}
	system := ""
	if line.Function != nil {
		f.Function, f.File, system = line.Function.Name, line.Function.Filename, line.Function.SystemName
	}
	if word, ok := strings.CutSuffix(system, ":"+f.Function); ok {
		if kind := stack.ParseKind(word); kind.String() == word {
			f.Kind = kind
			return f
		}
	}
	switch {
	case l.Mapping != nil && l.Mapping.File == gpuMapping:
		f.Kind = stack.KindKernel
	case f.Function == stack.Trampoline, f.Function == stack.Autograd:
		f.Kind = stack.KindTrampoline
	case stack.IsUnknown(f.Function):
		f.Kind = stack.KindUnknown
	case l.Mapping != nil:
		f.Kind, f.BuildID, f.Address = stack.KindNative, l.Mapping.BuildID, l.Address
	case strings.HasPrefix(f.Function, "0x"):
		f.Kind = stack.KindNative
	}
	return f
}
