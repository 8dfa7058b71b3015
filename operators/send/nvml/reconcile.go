// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Frames of bytes that no stack explains.
const (
	FrameContext      = stack.Context
	FrameBeforeAttach = stack.BeforeAttach
	FrameUnexplained  = stack.Unexplained
)

// Account is one process's memory at one moment, summed over
// its devices: a process's rows have the ordinals of CUDA, which its environment
// renumbers, and the driver has UUIDs.
type Account struct {
	// Used is the driver's count.
	Used int64
	// Explained are the in-use bytes of rows that are certainly in device memory,
	// Managed those that the driver may have moved elsewhere.
	Explained, Managed int64
	// Born: the process started after the attach, so it has no older memory.
	Born bool
	// Floor is the least Used − Explained seen so far, not below 0.
	Floor int64
	// Context is the size of a context here, measured on processes that started after
	// the attach; 0 while there was none.
	Context int64
}

// Parts add up to Used, always.
type Parts struct {
	// Stacks are bytes that rows explain.
	Stacks int64
	// Context is an estimate of the CUDA context with its modules: the memory of a
	// process without allocations.
	Context int64
	// BeforeAttach was in use at the attach and was not seen to be freed. While no
	// context was measured it contains the context, too.
	BeforeAttach int64
	// Unexplained is the rest: rounding to the driver's blocks, memory that a
	// pool keeps, modules loaded later. It is negative where rows have more than
	// the driver counts: physical memory of cuMemCreate that another process
	// counts, or a reading between two calls.
	Unexplained int64
}

// Reconcile divides the driver's count for a process.
func Reconcile(a Account) Parts {
	rest := a.Used - a.Explained
	// Managed memory is assumed to be on the device as far as the driver's count
	// exceeds the rest.
	resident := min(max(rest-a.Floor, 0), max(a.Managed, 0))
	p := Parts{Stacks: a.Explained + resident}
	rest -= resident
	if rest <= 0 {
		p.Unexplained = rest
		return p
	}
	context := a.Context
	if a.Born {
		context = a.Floor
	}
	p.Context = min(rest, max(context, 0))
	rest -= p.Context
	if !a.Born {
		p.BeforeAttach = min(rest, max(a.Floor-p.Context, 0))
		rest -= p.BeforeAttach
	}
	p.Unexplained = rest
	return p
}

// Rows returns the parts that no stack explains as rows of in-use bytes, so that a flame
// graph with them adds up to nvidia-smi's number. A negative rest has no row: a frame
// cannot show it. contexts are the rows of the process's contexts that exist: the bytes of
// the context are divided among the stacks that made them, equally, as contexts of one process
// differ little.
func (p Parts) Rows(of profile.Process, contexts ...profile.Row) []profile.Row {
	rows := p.contextRows(contexts)
	for n, part := range []struct {
		frame string
		bytes int64
	}{{FrameContext, p.Context}, {FrameBeforeAttach, p.BeforeAttach}, {FrameUnexplained, p.Unexplained}} {
		if n == 0 && len(rows) > 0 {
			continue
		}
		if part.bytes <= 0 {
			continue
		}
		rows = append(rows, profile.Row{
			Process: of, Kind: "driver", Device: profile.UnknownDevice,
			Stack: stack.Stack{{Kind: stack.KindUnknown, Function: part.frame}},
			Values: profile.Values{AllocBytes: part.bytes, AllocObjects: 1,
				InuseBytes: part.bytes, InuseObjects: 1, PeakBytes: part.bytes},
		})
	}
	return rows
}

// contextRows are the bytes of contexts on the stacks that made them. The rows themselves have
// the objects.
func (p Parts) contextRows(contexts []profile.Row) (rows []profile.Row) {
	var objects int64
	for i := range contexts {
		objects += contexts[i].InuseObjects
	}
	rest := p.Context
	for _, made := range contexts {
		if objects <= 0 || rest <= 0 {
			break
		}
		bytes := rest * made.InuseObjects / objects
		rest, objects = rest-bytes, objects-made.InuseObjects
		row := profile.Row{Process: made.Process, Span: made.Span, Kind: made.Kind, Device: made.Device,
			Stack:  append(stack.Stack{{Kind: stack.KindUnknown, Function: FrameContext}}, made.Stack...),
			Values: profile.Values{AllocBytes: bytes, InuseBytes: bytes, PeakBytes: bytes}}
		if bytes > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// Breakdown is a process with the parts of its memory.
type Breakdown struct {
	Process profile.Process
	Used    int64
	Parts
}

// tracker keeps the history per process that Reconcile needs. It is not safe for
// concurrent use.
type tracker struct {
	// born reports whether a process started after the gadget was attached.
	born      func(pid uint32) bool
	processes map[uint64]*history
	context   int64 // least floor of born processes
}

type history struct {
	born  bool
	floor int64
}

// held is one process's rows, summed up.
type held struct {
	process            profile.Process // with the labels that all rows have
	labels             labels.Common
	explained, managed int64
}

// update divides the memory of every process that the driver lists. rows are those of
// gadgets by pid; a process without rows has no explained memory. name returns the names
// of a process that no gadget follows.
func (t *tracker) update(used []ProcessMemory, rows map[uint32]held, name func(pid uint32) profile.Process) []Breakdown {
	var order []uint32
	sum := map[uint32]int64{}
	for _, u := range used {
		if _, ok := sum[u.PID]; !ok {
			order = append(order, u.PID)
		}
		sum[u.PID] += u.Bytes
	}
	seen := map[uint64]bool{}
	all := make([]Breakdown, 0, len(order))
	accounts := make([]Account, 0, len(order))
	for _, pid := range order {
		if sum[pid] == 0 {
			continue // unknown to the driver (in a container, or under WSL)
		}
		h, ok := rows[pid]
		if !ok {
			h.process = name(pid)
		}
		// A pid is reused, an ID is not. A process that no gadget follows has no ID.
		id := h.process.ID
		if id == 0 {
			id = uint64(pid)
		}
		seen[id] = true
		rest := max(sum[pid]-h.explained, 0)
		past := t.processes[id]
		if past == nil {
			past = &history{born: t.born(pid), floor: rest}
			t.processes[id] = past
		}
		past.floor = min(past.floor, rest)
		if past.born && past.floor > 0 && (t.context == 0 || past.floor < t.context) {
			t.context = past.floor
		}
		accounts = append(accounts, Account{Used: sum[pid], Explained: h.explained, Managed: h.managed,
			Born: past.born, Floor: past.floor})
		all = append(all, Breakdown{Process: h.process, Used: sum[pid]})
	}
	for id := range t.processes {
		if !seen[id] {
			delete(t.processes, id)
		}
	}
	for i := range all {
		accounts[i].Context = t.context
		all[i].Parts = Reconcile(accounts[i])
	}
	return all
}
