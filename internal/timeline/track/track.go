// SPDX-License-Identifier: Apache-2.0

// Package track defines the parts of a timeline: tracks of processes, with slices,
// counters, and arrows between slices. It is the interface between the producer (package
// weave) and the renderers (packages trace and page). All times are nanoseconds of
// CLOCK_BOOTTIME.
package track

// Track is a row of the timeline: a process, and a number within it. A thread's own
// track has its thread id as the number; others have numbers from Lane on, which no
// thread has (Linux has at most 2^22).
type Track struct {
	PID, ID uint32
}

// Lane is the number of a thread's further track: its CPU, its system calls.
func Lane(tid uint32, lane uint32) uint32 { return tid&(1<<22-1) | lane<<22 }

// Free returns the number of the n-th track that belongs to no thread. n may be as large
// as 2^31.
func Free(n uint32) uint32 { return 1<<31 | n }

// Slice is an interval from Start to End, which is not before Start.
type Slice struct {
	Start, End uint64
	Name       string
	// Category is one word for its kind: see weave.
	Category string
	// Args are only valid during the call.
	Args []Arg
}

// Arg is a detail of a slice: a text, or a number if Text is empty.
type Arg struct {
	Key    string
	Text   string
	Number int64
}

// Arrow leads from one slice to another one: by the track and a time in the slice.
type Arrow struct {
	ID           uint64
	Name         string
	From, To     Track
	FromNS, ToNS uint64
}

// Sink writes a timeline. Slices of one track are nested or disjoint; those of Slice are
// passed when they have ended, in no particular order. Begin and End are in the order of
// time, and nest. No errors are returned: a sink keeps its first error and counts what it
// could not write.
type Sink interface {
	// Process and Name are called before anything on the process or track, and again
	// when the name has changed.
	Process(pid uint32, name string)
	Name(t Track, name string, order int)
	Slice(t Track, s Slice)
	Begin(t Track, s Slice)
	// End ends the newest open slice of Begin; s has its name, its category and its End.
	End(t Track, s Slice)
	// Counter is a value from ns on.
	Counter(pid uint32, name string, ns uint64, value float64)
	Arrow(a Arrow)
	// Stack defines, once, the number in the argument "stack" of slices: its frames,
	// the innermost first.
	Stack(id uint64, frames []string)
}

// Sinks combines several sinks.
type Sinks []Sink

func (all Sinks) Process(pid uint32, name string) {
	for _, s := range all {
		s.Process(pid, name)
	}
}

func (all Sinks) Name(t Track, name string, order int) {
	for _, s := range all {
		s.Name(t, name, order)
	}
}

func (all Sinks) Slice(t Track, slice Slice) {
	for _, s := range all {
		s.Slice(t, slice)
	}
}

func (all Sinks) Begin(t Track, slice Slice) {
	for _, s := range all {
		s.Begin(t, slice)
	}
}

func (all Sinks) End(t Track, slice Slice) {
	for _, s := range all {
		s.End(t, slice)
	}
}

func (all Sinks) Counter(pid uint32, name string, ns uint64, value float64) {
	for _, s := range all {
		s.Counter(pid, name, ns, value)
	}
}

func (all Sinks) Arrow(a Arrow) {
	for _, s := range all {
		s.Arrow(a)
	}
}

func (all Sinks) Stack(id uint64, frames []string) {
	for _, s := range all {
		s.Stack(id, frames)
	}
}
