// SPDX-License-Identifier: Apache-2.0

// Package track is what a timeline consists of: tracks of processes, with slices,
// counters, and arrows between slices. It is the language between who knows what
// happened (package weave) and who draws it (packages trace and page). All times
// are nanoseconds of CLOCK_BOOTTIME.
package track

// Track is a row of the picture: a process, and a number within it. A thread's own
// track has its thread id as the number; others have numbers from Lane on, which no
// thread has (Linux has at most 2^22).
type Track struct {
	PID, ID uint32
}

// Lane is the number of a thread's further track: its CPU, its system calls.
func Lane(tid uint32, lane uint32) uint32 { return tid&(1<<22-1) | lane<<22 }

// Free is the number of the n-th track that belongs to no thread. n may be as large
// as 2^31.
func Free(n uint32) uint32 { return 1<<31 | n }

// Slice is something that lasted: from Start to End, which is not before it.
type Slice struct {
	Start, End uint64
	Name       string
	// Category is one word that says what kind of thing it is: see weave.
	Category string
	// Args are only valid during the call.
	Args []Arg
}

// Arg is a detail of a slice: a text, or a number where Text is empty.
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

// Sink takes a timeline. Slices of one track lie in each other or side by side;
// those of Slice come when they have ended, in no certain order. Begin and End
// come in the order of time, and nest. Nothing is returned: a sink keeps its first
// error and counts what it could not take.
type Sink interface {
	// Process and Name come before what is on the process or track, and again
	// when the name has changed.
	Process(pid uint32, name string)
	Name(t Track, name string, order int)
	Slice(t Track, s Slice)
	Begin(t Track, s Slice)
	// End ends what Begin began last, of which s has the name, the category and the End.
	End(t Track, s Slice)
	// Counter is a value from ns on.
	Counter(pid uint32, name string, ns uint64, value float64)
	Arrow(a Arrow)
	// Stack tells once what the number in the argument "stack" of slices means:
	// frames, the innermost first.
	Stack(id uint64, frames []string)
}

// Sinks is several as one.
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
