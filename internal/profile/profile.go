// SPDX-License-Identifier: Apache-2.0

// Package profile is the model of who holds what: one row per (process, stack,
// kind of memory, device) with what was allocated, freed and is still in use; or
// of who spends time: one row per (process, thread, stack) with its samples.
// A Profile is a snapshot at a time; from it come the totals per frame, the
// tree of a flame graph, the difference of two snapshots and the flow between
// them. It is pure: rows come in named, and nothing here knows where from.
//
// For every profile and every sample type: the self values of all frames add up
// to the sum of the rows, and so does the total of the root; a frame's total is
// at least its self, and counts a row once however often the frame recurs in
// its stack. The same rows in any order give the same profile.
package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// UnknownDevice is the Device of memory whose CUDA device was not seen.
const UnknownDevice = -1

// NoDevice is the Device of rows that are not about one.
const NoDevice = -2

// Process is who made the calls. ID tells processes apart, PID does not: it is
// reused. The container's names are empty outside of containers; Workload is what
// owns the pod, such as a Deployment.
type Process struct {
	ID   uint64
	PID  uint32
	Comm string

	Namespace, Pod, Container string
	Node, Workload            string
}

// Span is the id of a span of a trace: the 8 bytes of W3C's parent-id, the first
// highest. 0 is none.
type Span uint64

// String is the id as traces write it, "" for none.
func (s Span) String() string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(s))
}

// ParseSpan is the inverse of Span.String; what is not an id is none.
func ParseSpan(text string) Span {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0
	}
	return Span(id)
}

// Values are one row's counters since the row exists. Bytes and objects (calls
// that returned memory) go in pairs. They are signed so that the difference of
// two is a Values, too.
type Values struct {
	AllocBytes, AllocObjects int64
	FreedBytes, FreedObjects int64
	// Implicit: freed by the end of the process or of its CUDA context.
	ImplicitBytes, ImplicitObjects int64
	// In use = alloc − freed − implicit.
	InuseBytes, InuseObjects int64
	// PeakBytes is the highest InuseBytes so far. Rows merged into one may
	// have peaked at different times: their sum is an upper bound.
	PeakBytes int64

	// Samples is how often a stack was met, GILSamples how often its thread
	// held the GIL then, Nanoseconds the time that the samples stand for.
	Samples, GILSamples int64
	Nanoseconds         int64

	// Calls of the driver: all of them, those that launched a kernel or a graph, the
	// bytes of copies, the time that all took on the CPU's side, and of it what threads
	// waited for the device.
	Calls, Launches, CopiedBytes     int64
	HostNanoseconds, WaitNanoseconds int64

	// Kernels that the GPU is known to have run, and for how long; of a part of the
	// launches, as CUPTI in the process tells.
	Kernels, DeviceNanoseconds int64
}

// Add is the sum, field by field.
func (v Values) Add(w Values) Values {
	v.AllocBytes += w.AllocBytes
	v.AllocObjects += w.AllocObjects
	v.FreedBytes += w.FreedBytes
	v.FreedObjects += w.FreedObjects
	v.ImplicitBytes += w.ImplicitBytes
	v.ImplicitObjects += w.ImplicitObjects
	v.InuseBytes += w.InuseBytes
	v.InuseObjects += w.InuseObjects
	v.PeakBytes += w.PeakBytes
	v.Samples += w.Samples
	v.GILSamples += w.GILSamples
	v.Nanoseconds += w.Nanoseconds
	v.Calls += w.Calls
	v.Launches += w.Launches
	v.CopiedBytes += w.CopiedBytes
	v.HostNanoseconds += w.HostNanoseconds
	v.WaitNanoseconds += w.WaitNanoseconds
	v.Kernels += w.Kernels
	v.DeviceNanoseconds += w.DeviceNanoseconds
	return v
}

// Sub is the difference, field by field.
func (v Values) Sub(w Values) Values {
	return v.Add(Values{
		AllocBytes: -w.AllocBytes, AllocObjects: -w.AllocObjects,
		FreedBytes: -w.FreedBytes, FreedObjects: -w.FreedObjects,
		ImplicitBytes: -w.ImplicitBytes, ImplicitObjects: -w.ImplicitObjects,
		InuseBytes: -w.InuseBytes, InuseObjects: -w.InuseObjects,
		PeakBytes: -w.PeakBytes,
		Samples:   -w.Samples, GILSamples: -w.GILSamples, Nanoseconds: -w.Nanoseconds,
		Calls: -w.Calls, Launches: -w.Launches, CopiedBytes: -w.CopiedBytes,
		HostNanoseconds: -w.HostNanoseconds, WaitNanoseconds: -w.WaitNanoseconds,
		Kernels: -w.Kernels, DeviceNanoseconds: -w.DeviceNanoseconds,
	})
}

// Check says whether the counters of a snapshot agree with each other.
func (v Values) Check() error {
	if v.InuseBytes != v.AllocBytes-v.FreedBytes-v.ImplicitBytes {
		return fmt.Errorf("in use %d bytes is not allocated %d − freed %d − freed implicitly %d",
			v.InuseBytes, v.AllocBytes, v.FreedBytes, v.ImplicitBytes)
	}
	if v.InuseObjects != v.AllocObjects-v.FreedObjects-v.ImplicitObjects {
		return fmt.Errorf("in use %d objects is not allocated %d − freed %d − freed implicitly %d",
			v.InuseObjects, v.AllocObjects, v.FreedObjects, v.ImplicitObjects)
	}
	if v.InuseBytes < 0 || v.InuseObjects < 0 || v.PeakBytes < v.InuseBytes {
		return fmt.Errorf("in use %d bytes, %d objects, peak %d bytes", v.InuseBytes, v.InuseObjects, v.PeakBytes)
	}
	return nil
}

// Type is what a flame graph can show, in the order of the files.
type Type uint8

const (
	AllocObjects Type = iota
	AllocSpace
	InuseObjects
	InuseSpace
	// PeakSpace is for showing only: the sum over rows is an upper bound, since
	// their peaks need not have been at the same time.
	PeakSpace
	Samples
	CPUTime
	WallTime
	Launches
	Copied
	Wait
	HostTime
	// Where it is known; see DeviceTypes.
	Kernels
	DeviceTime
	// Of rows of the layer Torch; see TensorTypes.
	TensorAllocObjects
	TensorAllocSpace
	TensorInuseObjects
	TensorInuseSpace
)

// String is pprof's name of the type.
func (t Type) String() string {
	return [...]string{"alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "peak_space",
		"samples", "cpu", "wall", "launches", "copied", "wait", "host_time", "kernels", "device",
		"tensor_alloc_objects", "tensor_alloc_space", "tensor_inuse_objects", "tensor_inuse_space"}[t]
}

// Unit is pprof's unit of the type.
func (t Type) Unit() string {
	switch t {
	case AllocSpace, InuseSpace, PeakSpace, Copied, TensorAllocSpace, TensorInuseSpace:
		return "bytes"
	case CPUTime, WallTime, Wait, HostTime, DeviceTime:
		return "nanoseconds"
	default:
		return "count"
	}
}

// Subject is what a profile is about, which decides its sample types.
type Subject uint8

const (
	Memory Subject = iota
	CPU
	Wall
	// Calls are those of the CUDA driver and its libraries.
	Calls
)

// Subjects are all of them.
func Subjects() []Subject { return []Subject{Memory, CPU, Wall, Calls} }

// Types are those of a pprof file; the position is the column.
func (s Subject) Types() []Type {
	switch s {
	case CPU:
		return []Type{Samples, CPUTime}
	case Wall:
		return []Type{Samples, WallTime}
	case Calls:
		return []Type{Launches, Copied, Wait, HostTime}
	default:
		return []Type{AllocObjects, AllocSpace, InuseObjects, InuseSpace}
	}
}

// Types are those of memory.
func Types() []Type { return Memory.Types() }

// Default is the type that one looks at first.
func (s Subject) Default() Type {
	types := s.Types()
	return types[len(types)-1]
}

// Get is the value of the type.
func (v Values) Get(t Type) int64 {
	switch t {
	case AllocObjects, TensorAllocObjects:
		return v.AllocObjects
	case AllocSpace, TensorAllocSpace:
		return v.AllocBytes
	case InuseObjects, TensorInuseObjects:
		return v.InuseObjects
	case InuseSpace, TensorInuseSpace:
		return v.InuseBytes
	case PeakSpace:
		return v.PeakBytes
	case Samples:
		return v.Samples
	case Launches:
		return v.Launches
	case Copied:
		return v.CopiedBytes
	case Wait:
		return v.WaitNanoseconds
	case HostTime:
		return v.HostNanoseconds
	case Kernels:
		return v.Kernels
	case DeviceTime:
		return v.DeviceNanoseconds
	default:
		return v.Nanoseconds
	}
}

// Row is what one stack of one process holds of one kind on one device, or where
// one thread spends its time.
type Row struct {
	Process Process
	// Thread is 0 where rows are not by thread.
	Thread uint32
	// Span of a trace that the work was done for; 0: none, or not asked for.
	Span  Span
	Stack stack.Stack
	// Kind is of memory, or the operation of calls. Device is of memory and calls, and
	// may be UnknownDevice, which others have; calls of older files have NoDevice.
	Kind   string
	Device int32
	Values
}

// Profile is a snapshot. Rows are sorted and unique; treat them as read-only.
type Profile struct {
	Time    time.Time
	Subject Subject
	// Period is the time between two samples; 0 for memory.
	Period time.Duration
	Rows   []Row
}

type rowKey struct {
	process uint64
	stack   uint64
	kind    string
	device  int32
	thread  uint32
	span    Span
}

func (r Row) key() rowKey {
	return rowKey{r.Process.ID, r.Stack.ID(), r.Kind, r.Device, r.Thread, r.Span}
}

// New makes a snapshot of rows, which it does not keep. Rows of one process
// that differ only in addresses (their stacks are equal once they have names)
// become one; its PeakBytes is then an upper bound.
func New(at time.Time, rows []Row) *Profile {
	index := make(map[rowKey]int, len(rows))
	p := &Profile{Time: at, Rows: make([]Row, 0, len(rows))}
	for _, r := range rows {
		k := r.key()
		if i, ok := index[k]; ok {
			p.Rows[i].Values = p.Rows[i].Values.Add(r.Values)
			// Which of several names a process had must not depend
			// on the order of the rows.
			if compareProcess(r.Process, p.Rows[i].Process) < 0 {
				p.Rows[i].Process = r.Process
			}
			continue
		}
		index[k] = len(p.Rows)
		p.Rows = append(p.Rows, r)
	}
	slices.SortFunc(p.Rows, compareRow)
	return p
}

// Merge is the union of snapshots of different processes, taken at the time of
// the latest. Rows that are in several are added up, so two snapshots of the
// same process must not be merged: in-use is a level, not a flow. All must be of
// the same subject.
func Merge(profiles ...*Profile) *Profile {
	merged := &Profile{}
	if len(profiles) > 0 {
		merged.Subject, merged.Period = profiles[0].Subject, profiles[0].Period
	}
	var at time.Time
	var rows []Row
	for _, p := range profiles {
		if p.Time.After(at) {
			at = p.Time
		}
		rows = append(rows, p.Rows...)
	}
	all := New(at, rows)
	merged.Time, merged.Rows = all.Time, all.Rows
	return merged
}

// Sum is the sum of all rows.
func (p *Profile) Sum() Values {
	var sum Values
	for _, r := range p.Rows {
		sum = sum.Add(r.Values)
	}
	return sum
}

func compareRow(a, b Row) int {
	return cmp.Or(
		compareProcess(a.Process, b.Process),
		compareStack(a.Stack, b.Stack),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Thread, b.Thread),
		cmp.Compare(a.Span, b.Span),
	)
}

func compareProcess(a, b Process) int {
	return cmp.Or(
		cmp.Compare(a.PID, b.PID),
		cmp.Compare(a.ID, b.ID),
		strings.Compare(a.Comm, b.Comm),
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Pod, b.Pod),
		strings.Compare(a.Container, b.Container),
	)
}

// compareStack orders stacks from the root, so that callers stay together.
func compareStack(a, b stack.Stack) int {
	for i := 1; i <= min(len(a), len(b)); i++ {
		if c := compareFrame(a[len(a)-i], b[len(b)-i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareFrame(a, b stack.Frame) int {
	a, b = a.Identity(), b.Identity()
	if a == b {
		return 0
	}
	return cmp.Or(
		strings.Compare(a.Function, b.Function),
		strings.Compare(a.File, b.File),
		cmp.Compare(a.Line, b.Line),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Address, b.Address),
		strings.Compare(a.BuildID, b.BuildID),
	)
}
