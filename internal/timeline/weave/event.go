// SPDX-License-Identifier: Apache-2.0

package weave

import (
	"cmp"
	"fmt"
	"strings"
)

// Frame is a Python frame as the timeline shows it.
type Frame struct {
	// Name is the qualname, Place its file and line: `model.py:12`.
	Name, Place string
	// Key tells functions apart, whatever the line in them.
	Key string
}

// Stack is where a call was made.
type Stack struct {
	// ID is the stack's content hash in the kernel; 0: no stack.
	ID uint64
	// Python frames, the outermost first.
	Python []Frame
	// Labels are all frames, native ones too, the innermost first.
	Labels []string
}

// At is the innermost Python frame, for a column of text; empty without Python.
func (s *Stack) At() string {
	if s == nil || len(s.Python) == 0 {
		return ""
	}
	f := s.Python[len(s.Python)-1]
	return f.Name + " (" + f.Place + ")"
}

// Thread is who did something.
type Thread struct {
	Process  uint64 // id that is never reused
	PID, TID uint32
	Comm     string // of the process
}

// Kind of a call. The word is the category of its slice.
type Kind string

const (
	Launch Kind = "launch"
	Copy   Kind = "copy"
	Set    Kind = "memset"
	Wait   Kind = "wait"
	Load   Kind = "load"
	Span   Kind = "span"
	Other  Kind = "call"
	// Collective is a call of NCCL.
	Collective Kind = "nccl"
)

// Streams that are no handles. A wait for NoStream is one for all streams.
const (
	NoStream         = 0
	DefaultStream    = 1 // of the context
	ThreadsOwnStream = 2 // the default stream of each thread
)

// Device is a CUDA ordinal and one more, so that 0 is one that is not known.
type Device uint32

// DeviceOf is the device of an ordinal; of a negative one, none that is known.
func DeviceOf(ordinal int32) Device { return Device(max(ordinal, -1) + 1) }

// Ordinal is what CUDA calls it, in this process; -1: it is not known.
func (d Device) Ordinal() int32 { return int32(d) - 1 }

// Call is one call of the driver, or of a library above it.
type Call struct {
	Thread
	Start, End uint64 // boot ns; End is 0 if unknown
	Function   string // name in the driver
	Kind       Kind
	Kernel     string // that was launched; else empty
	Grid       [3]uint32
	Block      [3]uint32
	Shared     uint32 // bytes
	Device     Device // of the thread's current context
	Stream     uint64 // handle, or one of the numbers above
	Bytes      uint64
	Direction  string // of a copy: HtoD, DtoH, …
	Error      string // empty: it succeeded
	Stack      *Stack
	// Track, where it is not empty, is the name of the track that the call is drawn on
	// instead of its thread's; Stream then distinguishes tracks of that name.
	Track string
	// Pair, where it is not nil, says which other call this one is an end of.
	Pair *Pair
}

// MayConcern is whether a wait for all streams is one for those of a device, as far as
// is known.
func (c *Call) MayConcern(device Device) bool {
	return c.Device == 0 || device == 0 || c.Device == device || c.Function != contextWait
}

// contextWait waits for the current context; for others their streams are not known.
const contextWait = "cuCtxSynchronize"

// Pair is a send and its receive, as both of them know it.
type Pair struct {
	Communicator     uint64 // the same in all ranks
	Sender, Receiver int32
	Number           uint64 // between these two
}

// HostKind says what a thread did on the host.
type HostKind uint8

const (
	Ran     HostKind = iota + 1 // it was on a CPU
	Slept                       // it was not; Reason says why
	Syscall                     // it was in a system call
	Sample                      // its Python stack at one moment
	Memory                      // resident bytes of its process
)

// Host is something that a thread did on the host.
type Host struct {
	Thread
	Kind       HostKind
	Start, End uint64 // boot ns; equal for a sample
	CPU        uint32
	Name       string // of a system call; why it slept
	Reason     string // kernel function that it slept in
	File       string // or device
	Result     int64  // of a system call
	Bytes      uint64 // read or written by it, or mapped
	FileBytes  uint64 // of Memory: resident pages of files
	AnonBytes  uint64 // of Memory: other resident pages
	Stack      *Stack
}

// Inuse is what a process holds of a device's memory, or, pinned, of the host's, from one
// time on.
type Inuse struct {
	Thread
	At     uint64 // boot ns
	Device Device
	IsHost bool
	Bytes  uint64
}

// Compare orders them by process, the host's memory after that of devices.
func (u *Inuse) Compare(v *Inuse) int {
	return cmp.Or(cmp.Compare(u.PID, v.PID), cmp.Compare(u.Process, v.Process), cmp.Compare(u.rank(), v.rank()))
}

func (u *Inuse) rank() int64 {
	if u.IsHost {
		return 1 << 32
	}
	return int64(u.Device)
}

// Name is that of the counter.
func (u *Inuse) Name() string {
	switch n := u.Device.Ordinal(); {
	case u.IsHost:
		return "pinned on the host, bytes"
	case n < 0:
		return "in use, GPU not known, bytes"
	default:
		return fmt.Sprintf("GPU %d in use, bytes", n)
	}
}

// label is a Python frame's name for a slice.
func (f Frame) label() string {
	if i := strings.LastIndex(f.Name, ".<locals>."); i >= 0 {
		return f.Name[i+len(".<locals>."):]
	}
	return f.Name
}
