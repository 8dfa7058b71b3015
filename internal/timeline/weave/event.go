// SPDX-License-Identifier: Apache-2.0

package weave

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Frame is a Python frame as the timeline shows it.
type Frame struct {
	// Name is the qualname, Place its file and line: `model.py:12`.
	Name, Place string
	// Key identifies the function, regardless of the line.
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

// Thread is the origin of an event.
type Thread struct {
	Process  uint64 // id that is never reused
	PID, TID uint32
	Comm     string // of the process
}

// Kind of a call. Its name is the category of its slice.
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

// Streams without a handle. A wait for NoStream is one for all streams.
const (
	NoStream         = 0
	DefaultStream    = 1 // of the context
	ThreadsOwnStream = 2 // the default stream of each thread
)

// Device is a CUDA ordinal plus one, so that 0 means unknown.
type Device uint32

// DeviceOf returns the device of an ordinal; unknown for a negative one.
func DeviceOf(ordinal int32) Device { return Device(max(ordinal, -1) + 1) }

// Ordinal is CUDA's number in this process; -1: unknown.
func (d Device) Ordinal() int32 { return int32(d) - 1 }

// Call is one call of the driver, or of a library above it.
type Call struct {
	Thread
	Start, End uint64 // boot ns; End is 0 if unknown
	Function   string // name in the driver
	Kind       Kind
	Kernel     string // that was launched, or empty
	Grid       [3]uint32
	Block      [3]uint32
	Shared     uint32 // bytes
	Device     Device // of the thread's current context
	Stream     uint64 // handle, or one of the numbers above
	Bytes      uint64
	Direction  string // of a copy: HtoD, DtoH, …
	Error      string // empty: it succeeded
	Stack      *Stack
	// Track, if not empty, is the name of the call's track instead of its thread's;
	// Stream then distinguishes tracks of that name.
	Track string
	// Pair, if not nil, connects this call with another one.
	Pair *Pair
}

// MayConcern reports whether a wait for all streams may cover those of a device.
func (c *Call) MayConcern(device Device) bool {
	return c.Device == 0 || device == 0 || c.Concerns(device)
}

// Concerns reports whether a wait for all streams covers those of a device.
func (c *Call) Concerns(device Device) bool {
	return c.Device == device || !slices.Contains(contextWaits, c.Function)
}

// WaitsForEvent reports whether it is a wait for an event, and not for all of a stream.
func (c *Call) WaitsForEvent() bool { return slices.Contains(eventWaits, c.Function) }

// IsDone reports whether it is a copy that returns when it, and the work before it on its stream, is done.
func (c *Call) IsDone() bool {
	return c.Kind == Copy && profile.IsCopied(c.Direction, c.Function)
}

// contextWaits wait for the current context or device; the streams of others are unknown.
var (
	contextWaits = []string{"cuCtxSynchronize", "cuCtxSynchronize_v2", "hipCtxSynchronize", "hipDeviceSynchronize"}
	eventWaits   = []string{"cuEventSynchronize", "hipEventSynchronize"}
)

// Pair identifies a send and its receive, equal for both.
type Pair struct {
	Communicator     uint64 // the same in all ranks
	Sender, Receiver int32
	Number           uint64 // between these two
}

// HostKind is the kind of an activity on the host.
type HostKind uint8

const (
	Ran     HostKind = iota + 1 // it was on a CPU
	Slept                       // it was not; Reason has the cause
	Syscall                     // it was in a system call
	Sample                      // its Python stack at one moment
	Memory                      // resident bytes of its process
)

// Host is an activity of a thread on the host.
type Host struct {
	Thread
	Kind       HostKind
	Start, End uint64 // boot ns; equal for a sample
	CPU        uint32
	Name       string // of a system call; why it slept
	Reason     string // kernel function in which it slept
	File       string // or device
	Result     int64  // of a system call
	Bytes      uint64 // read or written by it, or mapped
	FileBytes  uint64 // of Memory: resident pages of files
	AnonBytes  uint64 // of Memory: other resident pages
	Stack      *Stack
}

// Inuse is how much memory of a device, or pinned memory of the host, a process holds
// from a time on.
type Inuse struct {
	Thread
	At     uint64 // boot ns
	Device Device
	IsHost bool
	Bytes  uint64
}

// Compare orders them by process, with the host's memory after that of devices.
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
		return "in use, unknown GPU, bytes"
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
