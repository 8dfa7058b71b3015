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

// Process is who made the calls. ID identifies the process, PID does not: it is
// reused. The container's names are empty outside of containers; Workload is what
// owns the pod, such as a Deployment.
type Process struct {
	ID   uint64
	PID  uint32
	Comm string

	Namespace, Pod, Container string
	Node, Workload            string

	// Labels are those that the user requested (labels.Encode of internal/process/labels), all
	// of them or none.
	Labels string
}

// Staying is the process in the pod that an earlier row of the same process named, if one did: a
// process never moves to another. Rows are named by the number of their mount namespace, which
// the kernel gives to the next container when a process has exited, while its row remains.
func (p Process) Staying(earlier Process) Process {
	if earlier.Namespace != "" && (p.Namespace != earlier.Namespace || p.Pod != earlier.Pod) {
		p.Namespace, p.Pod, p.Container, p.Workload = earlier.Namespace, earlier.Pod, earlier.Container, earlier.Workload
	}
	return p
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

// ParseSpan is the inverse of Span.String; text that is not an id is none.
func ParseSpan(text string) Span {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0
	}
	return Span(id)
}

// Row has the memory of one kind that one stack of one process holds on one device, or where
// one thread spends its time.
type Row struct {
	Process Process
	// Thread is 0 where rows are not by thread.
	Thread uint32
	// Span of a trace that the work was done for; 0: none, or not requested.
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
	// Time is when the values were read, and Duration since when they count; 0: unknown.
	Time     time.Time
	Duration time.Duration
	Subject  Subject
	// Period is the time between two samples; 0 for memory.
	Period time.Duration
	Rows   []Row
	// Notes are sentences about the whole, such as when a process held the most.
	Notes []string
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
// become one; its PeakBytes is then an upper bound, its AtPeakBytes is not.
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
		strings.Compare(a.Labels, b.Labels),
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
