// SPDX-License-Identifier: Apache-2.0

// Package collective finds the rank that keeps a collective of NCCL waiting, and why.
//
// Its input is the operations that each rank of each communicator has issued, and which
// of them are known to be complete (Observation). It compares ranks and returns verdicts:
// a rank is missing, two ranks made different calls, a send has no receive, a process is
// dead, all ranks have arrived and nothing completes, one rank is always the last.
// Several communicators that hang for one reason have one verdict.
//
// The package is pure: no files, no processes, no clock. The caller passes the time, so
// that a recorded or a simulated run gives the same verdicts as a real one.
package collective

import "strconv"

// Time is in nanoseconds of one clock for all ranks that are compared: the boot clock
// on one node, the wall clock between nodes. Zero is "never" or "not known".
type Time int64

// Process is one process on one node. Two processes never share an ID on a node
// (bpf/process/process.h), even if a pid is reused.
type Process struct {
	Node string
	ID   uint64
	PID  uint32
	Comm string
	// Namespace, Pod and Container are where it runs, as far as that is known.
	Namespace, Pod, Container string
}

// staying is the process in the container that an earlier observation named, if one did: a process never moves to another.
func (p Process) staying(earlier Process) Process {
	isNamed := p.Namespace != "" || p.Pod != "" || p.Container != ""
	if !isNamed || earlier.Namespace != "" && (p.Namespace != earlier.Namespace || p.Pod != earlier.Pod) {
		p.Namespace, p.Pod, p.Container = earlier.Namespace, earlier.Pod, earlier.Container
	}
	return p
}

// key of a process: all else is only for display.
type processKey struct {
	node string
	id   uint64
}

func (p Process) key() processKey { return processKey{p.Node, p.ID} }

// Communicator is the identity of a communicator, the same for all its ranks.
type Communicator struct {
	// Hash is the same for all ranks of a communicator, on all nodes, and differs
	// between communicators.
	Hash uint64
	// Name is that of a process group, or empty.
	Name string
	// Size is the number of ranks; 0: unknown.
	Size int
}

// String is its name in texts, tables and labels of metrics.
func (c Communicator) String() string {
	s := c.ID()
	if c.Name != "" {
		s = c.Name + " (" + s + ")"
	}
	return s
}

// ID is its hash as a label of metrics.
func (c Communicator) ID() string { return "0x" + hex(c.Hash) }

func hex(n uint64) string {
	s := strconv.FormatUint(n, 16)
	for len(s) < 8 {
		s = "0" + s
	}
	return s
}

// None is the peer of an operation without a root or peer.
const None = -1

// Operation is one call of one rank.
type Operation struct {
	// Seq numbers, from 1 and without gaps: all collectives of this communicator on
	// this rank together, whatever their kind; sends by their peer; receives by
	// their peer.
	Seq  uint64
	Kind Kind
	// Count is the call's number of elements, of DType each.
	Count uint64
	DType DType
	// Reduction is ncclRedOp_t: 0 sum, 1 product, …; 0 if nothing is reduced.
	Reduction int32
	// Peer is the root of a collective or the other end of a send or receive; None.
	Peer int
	// Stream is the CUDA stream, opaque.
	Stream uint64
	// Enter and Return are when the call began and when it returned, at which time
	// the operation is enqueued but not done. Return is 0 while the thread is still
	// inside; calls in a group return at its end.
	Enter, Return Time
	// PendingAt is when it was last known to be incomplete: by a query, or because a
	// thread is in a wait that covers it. 0: never queried.
	PendingAt Time
	// DoneBy is when it was known to be complete: the return of the first wait that
	// covers it. It was complete at some time in (max(Enter, PendingAt), DoneBy].
	DoneBy Time
	// Captured: the call made a node of a CUDA graph, and nothing is executed. It is done with the work of its stream, which
	// says nothing of other ranks.
	Captured bool
	// Stack identifies the stack of the call; Line is its innermost line of Python
	// ("train.py:41 step"). Either may be missing.
	Stack uint64
	Line  string
}

// Bytes is the size of the buffer that the rank gave: Count elements.
func (o Operation) Bytes() uint64 { return o.Count * o.DType.Size() }

// isPending: a thread waits for it at the time.
func (o Operation) isPending(since Time) bool {
	return o.DoneBy == 0 && (o.Return == 0 || o.PendingAt >= since)
}

// Progress is the progress of a rank with a peer.
type Progress struct {
	Kind   Kind // Send or Recv
	Peer   int
	Issued uint64
	Done   uint64 // newest known to be complete
	Enter  Time   // of the newest
}

// State is that of a rank's process, as far as it matters for the rank.
type State uint8

// States of a process. Their order has no meaning.
const (
	Unknown State = iota
	Running
	Sleeping
	Uninterruptible
	Stopped   // by a signal
	Traced    // by a debugger
	Zombie    // ended, not reaped
	Gone      // ended
	Aborted   // ncclCommAbort was called
	Destroyed // ncclCommDestroy was called
)

var stateNames = [...]string{"unknown", "running", "sleeping", "uninterruptible", "stopped", "traced", "zombie", "gone", "aborted", "destroyed"}

// String is the state's name, as metrics have it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// ParseState is the inverse of String; Unknown for other names.
func ParseState(name string) State {
	for i, n := range stateNames {
		if n == name {
			return State(i)
		}
	}
	return Unknown
}

// IsDead reports whether it will not arrive by itself.
func (s State) IsDead() bool {
	switch s {
	case Stopped, Traced, Zombie, Gone, Aborted, Destroyed:
		return true
	}
	return false
}

// Observation is the state of one rank of one communicator at a time. A later one
// of the same rank replaces it; History most recent operations are kept.
type Observation struct {
	At      Time
	Process Process
	// Tenant is whom the process belongs to, such as its namespace: see Config.MaxRanks.
	Tenant       string
	Communicator Communicator
	Rank         int
	// Device is the CUDA ordinal in the process, or None.
	Device int
	// Issued is the newest collective's number; Done the newest that is known to be
	// complete, at DoneAt. Sends and receives do not count here.
	Issued, Done uint64
	DoneAt       Time
	// Operations are the newest ones, at most History, oldest first, of all kinds. Before them there may be one more: the first
	// collective that was not known to be done when newer operations took its place.
	Operations []Operation
	// Digests are of all its collectives, also of those that are no longer among Operations.
	Digests Digests
	// Peers is its progress with each peer. If it is missing, it is derived from Operations.
	Peers []Progress
	// Late: the communicator is older than the attach, so numbers begin there, and
	// ranks cannot be compared by them.
	Late bool
	// State, and the Python stack of the thread that blocks the rank, innermost first
	// ("train.py:41 step"), both read at At or shortly before; Stack may be empty.
	State State
	// Wchan is the kernel function in which the thread sleeps (/proc/PID/wchan), or empty.
	Wchan string
	Stack []string
	// UserLine is the innermost line of Stack in the program's own code, not in a library;
	// empty: unknown.
	UserLine string
	// StackIsLast: Stack is that of the newest operation's call, not of the thread now.
	StackIsLast bool
}

// History is the number of operations that are kept per rank.
const History = 16
