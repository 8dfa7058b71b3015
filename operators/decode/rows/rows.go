// SPDX-License-Identifier: Apache-2.0

// Package rows reads the rows of our gadgets' data sources as typed values: `allocs`
// `samples` or `calls`, arrays with the cumulative rows of all processes at every interval,
// and `ooms`, single events. Fields are bound once; consumers bind them in PreStart, when
// the fields of other operators exist. Readers keep no state, so they may be used
// concurrently; the data itself must not be kept after a callback.
package rows

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// AnnotationSubject of `samples` is cpu or wall, AnnotationPeriod the time
	// between two samples, a Go duration. Set before PreStart.
	AnnotationSubject = "gpu-gadgets.profile.subject"
	AnnotationPeriod  = "gpu-gadgets.profile.period"
)

// Reader reads one row, of memory, of time or of calls.
type Reader interface {
	ID(datasource.Data) profile.RowID
	Values(datasource.Data) profile.Values
	Process(datasource.Data) profile.Process
	// PID is that of Process.
	PID(datasource.Data) uint32
	// Kernel is the name of the kernel that a call launched, "" for other rows.
	Kernel(datasource.Data) string
	// Version is that of the stack with the kernel on top, and of the process's labels, of the version of
	// the stack: the name of a kernel and labels may be known later than their row.
	Version(row datasource.Data, stack uint64) uint64
}

// Source is a data source of rows, and their subject.
type Source struct {
	Reader
	Data    datasource.DataSource
	Subject profile.Subject
	Period  time.Duration // between samples; 0 for memory
}

// Row is one row of a reading.
type Row struct {
	ID     profile.RowID
	Values profile.Values
	Data   datasource.Data // the first one with the ID
}

// Reading has the rows of one reading after the other, in the same memory. It is not safe for concurrent use.
type Reading struct {
	rows  []Row
	index map[profile.RowID]int // of rows
}

// Read returns the rows of a reading, each ID once, until the next call: before Linux 6.0 cuda_alloc has a
// row for each context in which a stack allocated, and these are added up.
func (r *Reading) Read(from Reader, all datasource.DataArray) []Row {
	if r.index == nil || cap(r.rows) > 4*all.Len()+1000 { // most of it is not needed any more
		*r = Reading{make([]Row, 0, all.Len()), make(map[profile.RowID]int, all.Len())}
	}
	clear(r.rows)
	clear(r.index)
	r.rows = r.rows[:0]
	for n := range all.Len() {
		d := all.Get(n)
		id, values := from.ID(d), from.Values(d)
		if i, ok := r.index[id]; ok {
			r.rows[i].Values = r.rows[i].Values.Add(values)
			continue
		}
		r.index[id] = len(r.rows)
		r.rows = append(r.rows, Row{id, values, d})
	}
	return r.rows
}

// Find returns the data source with the rows, nil if the gadget has none.
func Find(sources map[string]datasource.DataSource) datasource.DataSource {
	for _, name := range []string{"allocs", "samples", "calls"} {
		ds := sources[name]
		if ds != nil && ds.Type() == datasource.TypeArray && ds.GetField("stack_id") != nil {
			return ds
		}
	}
	return nil
}

// Bind finds the fields of the data source that Find returned.
func Bind(ds datasource.DataSource) (Source, error) {
	s := Source{Data: ds}
	if ds.Name() == "allocs" {
		f, err := bindAllocs(ds)
		s.Reader = &f
		return s, err
	}
	if ds.Name() == "calls" {
		s.Subject = profile.Calls
		f, err := bindCalls(ds)
		s.Reader = &f
		return s, err
	}
	s.Subject = profile.CPU
	if ds.Annotations()[AnnotationSubject] == profile.WallTime.String() {
		s.Subject = profile.Wall
	}
	var err error
	if s.Period, err = time.ParseDuration(ds.Annotations()[AnnotationPeriod]); err != nil {
		return s, fmt.Errorf("period of %s: %w", ds.Name(), err)
	}
	f, err := bindSamples(ds, s.Period)
	s.Reader = &f
	return s, err
}

// number reads an integer of any width; false if the field is absent or not an integer.
func number(f datasource.FieldAccessor, d datasource.Data) (uint64, bool) {
	if f == nil {
		return 0, false
	}
	switch f.Type() {
	case api.Kind_Uint64:
		v, err := f.Uint64(d)
		return v, err == nil
	case api.Kind_Int64:
		v, err := f.Int64(d)
		return uint64(v), err == nil
	case api.Kind_Uint32:
		v, err := f.Uint32(d)
		return uint64(v), err == nil
	case api.Kind_Int32:
		v, err := f.Int32(d)
		return uint64(int64(v)), err == nil
	case api.Kind_Uint16:
		v, err := f.Uint16(d)
		return uint64(v), err == nil
	case api.Kind_Uint8:
		v, err := f.Uint8(d)
		return uint64(v), err == nil
	}
	return 0, false
}

// value is number for a counter, which cannot be negative or enormous.
func value(f datasource.FieldAccessor, d datasource.Data) int64 {
	v, _ := number(f, d)
	return int64(min(v, math.MaxInt64))
}

func text(f datasource.FieldAccessor, d datasource.Data) string {
	if f == nil {
		return ""
	}
	s, _ := f.String(d)
	return s
}

// words are the names of enum values that rows have most, so that each row does not make its own.
var words = map[string]string{"device": "device", "managed": "managed", "host": "host", "array": "array", "vmm": "vmm",
	"pool": "pool", "tensor": "tensor", "context": "context"}

// word returns the name of an enum value, or its number if it has no name.
func word(name, raw datasource.FieldAccessor, d datasource.Data) string {
	if name != nil {
		if s, ok := words[string(bytes.TrimRight(name.Get(d), "\x00"))]; ok {
			return s
		}
	}
	if s := text(name, d); s != "" {
		return s
	}
	if v, ok := number(raw, d); ok {
		return strconv.FormatInt(int64(v), 10)
	}
	return ""
}

// processFields are those of every row about a process; the container's are nil if
// Inspektor Gadget provides none.
type processFields struct {
	id, pid, comm             datasource.FieldAccessor
	namespace, pod, container datasource.FieldAccessor
	runtimeContainer          datasource.FieldAccessor
	node, workload, labels    datasource.FieldAccessor
	stackID                   datasource.FieldAccessor
	spanID, born              datasource.FieldAccessor // nil if a gadget has no spans
}

func bindProcess(ds datasource.DataSource) (processFields, error) {
	f, err := bindProcessAlone(ds)
	if err == nil && f.stackID == nil {
		err = fmt.Errorf("data source %s has no stack_id", ds.Name())
	}
	return f, err
}

// bindProcessAlone is for rows without a stack.
func bindProcessAlone(ds datasource.DataSource) (processFields, error) {
	f := processFields{
		id: ds.GetField("process"), pid: ds.GetField("proc.pid"), comm: ds.GetField("proc.comm"),
		namespace: ds.GetField("k8s.namespace"), pod: ds.GetField("k8s.podName"), container: ds.GetField("k8s.containerName"),
		runtimeContainer: ds.GetField("runtime.containerName"),
		node:             ds.GetField("k8s.node"), workload: ds.GetField("k8s.owner.name"), labels: ds.GetField("labels"),
		stackID: ds.GetField("stack_id"), spanID: ds.GetField("span_id"), born: ds.GetField("row_boot_ns"),
	}
	if f.id == nil || f.pid == nil {
		return f, fmt.Errorf("data source %s has no process or proc.pid", ds.Name())
	}
	return f, nil
}

func (f *processFields) Process(d datasource.Data) profile.Process {
	id, _ := number(f.id, d)
	p := profile.Process{
		ID: id, PID: f.PID(d), Comm: text(f.comm, d),
		Namespace: text(f.namespace, d), Pod: text(f.pod, d), Container: text(f.container, d),
		Node: text(f.node, d), Workload: text(f.workload, d), Labels: text(f.labels, d),
	}
	if p.Container == "" {
		p.Container = text(f.runtimeContainer, d)
	}
	return p
}

func (f *processFields) PID(d datasource.Data) uint32 {
	pid, _ := number(f.pid, d)
	return uint32(pid)
}

// Kernel: most rows have none.
func (*processFields) Kernel(datasource.Data) string { return "" }

// versionSeed is of versions.
var versionSeed = maphash.MakeSeed()

func (f *processFields) Version(d datasource.Data, stack uint64) uint64 {
	return version(f.labels, d, stack)
}

// version adds a text that may change to a version; f is nil where rows have none.
func version(f datasource.FieldAccessor, d datasource.Data, of uint64) uint64 {
	if f == nil {
		return of
	}
	if text := f.Get(d); len(text) > 0 {
		return of ^ maphash.Bytes(versionSeed, text)
	}
	return of
}

// span fills the fields of a row's span.
func (f *processFields) span(id *profile.RowID, d datasource.Data) {
	if id.Span = profile.ParseSpan(text(f.spanID, d)); id.Span != 0 {
		id.Born, _ = number(f.born, d)
	}
}

type allocFields struct {
	processFields
	kind, kindRaw, device                              datasource.FieldAccessor
	allocBytes, allocObjects, freedBytes, freedObjects datasource.FieldAccessor
	implicitBytes, implicitObjects                     datasource.FieldAccessor
	inuseBytes, inuseObjects, peakBytes                datasource.FieldAccessor
	rounding, fragmented                               datasource.FieldAccessor // nil: not recorded
}

func bindAllocs(ds datasource.DataSource) (allocFields, error) {
	process, err := bindProcess(ds)
	if err != nil {
		return allocFields{}, err
	}
	f := allocFields{
		processFields: process,
		kind:          ds.GetField("kind"), kindRaw: ds.GetField("kind_raw"), device: ds.GetField("device"),
		rounding: ds.GetField("rounding_bytes"), fragmented: ds.GetField("fragmented_bytes"),
	}
	for name, to := range map[string]*datasource.FieldAccessor{
		"alloc_bytes": &f.allocBytes, "alloc_objects": &f.allocObjects,
		"freed_bytes": &f.freedBytes, "freed_objects": &f.freedObjects,
		"implicit_bytes": &f.implicitBytes, "implicit_objects": &f.implicitObjects,
		"inuse_bytes": &f.inuseBytes, "inuse_objects": &f.inuseObjects,
		"peak_bytes": &f.peakBytes,
	} {
		if *to = ds.GetField(name); *to == nil {
			return f, fmt.Errorf("data source %s has no %s", ds.Name(), name)
		}
	}
	return f, nil
}

func (f *allocFields) ID(d datasource.Data) profile.RowID {
	process, _ := number(f.processFields.id, d)
	stackID, _ := number(f.stackID, d)
	id := profile.RowID{Process: process, StackID: stackID, Kind: word(f.kind, f.kindRaw, d), Device: profile.UnknownDevice}
	if device, ok := number(f.device, d); ok {
		id.Device = int32(device)
	}
	f.span(&id, d)
	return id
}

func (f *allocFields) Values(d datasource.Data) profile.Values {
	return profile.Values{
		AllocBytes: value(f.allocBytes, d), AllocObjects: value(f.allocObjects, d),
		FreedBytes: value(f.freedBytes, d), FreedObjects: value(f.freedObjects, d),
		ImplicitBytes: value(f.implicitBytes, d), ImplicitObjects: value(f.implicitObjects, d),
		InuseBytes: value(f.inuseBytes, d), InuseObjects: value(f.inuseObjects, d),
		PeakBytes: value(f.peakBytes, d), RoundingBytes: value(f.rounding, d), FragmentedBytes: value(f.fragmented, d),
	}
}

// samplesFields are the rows of a profile of time.
type samplesFields struct {
	processFields
	tid, samples, gil datasource.FieldAccessor
	period            time.Duration
}

func bindSamples(ds datasource.DataSource, period time.Duration) (samplesFields, error) {
	process, err := bindProcess(ds)
	if err != nil {
		return samplesFields{}, err
	}
	f := samplesFields{
		processFields: process, period: period,
		tid: ds.GetField("tid"), samples: ds.GetField("samples"), gil: ds.GetField("gil_samples"),
	}
	if f.samples == nil {
		return f, fmt.Errorf("data source %s has no samples", ds.Name())
	}
	return f, nil
}

func (f *samplesFields) ID(d datasource.Data) profile.RowID {
	process, _ := number(f.processFields.id, d)
	stackID, _ := number(f.stackID, d)
	tid, _ := number(f.tid, d)
	id := profile.RowID{Process: process, StackID: stackID, Device: profile.UnknownDevice, Thread: uint32(tid)}
	f.span(&id, d)
	return id
}

func (f *samplesFields) Values(d datasource.Data) profile.Values {
	n := value(f.samples, d)
	return profile.Values{
		Samples: n, GILSamples: value(f.gil, d),
		// 2^63 ns are 292 years of one CPU.
		Nanoseconds: n * f.period.Nanoseconds(),
	}
}
