// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Trace is where a thread is.
type Trace struct {
	// Stack is Python's, leaf first.
	Stack stack.Stack
	// Syscall is the system call that it sleeps in, "" if none.
	Syscall string
	// WaitsForGIL: it is ready to run, and another thread is in the interpreter.
	WaitsForGIL bool
}

// idleness is how little a thread can be what a rank waits for; smaller is more likely.
type idleness int

const (
	// works: it computes, sleeps, reads.
	works idleness = iota
	// waits: for a lock, so that another thread can run.
	waits
	// supervises: for the end of other threads or processes, or for events.
	supervises
	// foreign: no line of the program is on its stack; a library has started it.
	foreign
)

// supervisors are functions of the standard library, by file, that only wait for what
// others do.
var supervisors = map[string][]string{
	"threading.py":                 {"join"},
	"subprocess.py":                {"wait"},
	"asyncio/base_events.py":       {"run_forever"},
	"concurrent/futures/thread.py": {"shutdown"},
	"multiprocessing/process.py":   {"join"},
}

func (t Trace) idleness() idleness {
	if user := t.Stack.User(); user.Kind != stack.KindPython || user.Library {
		return foreign
	}
	for _, f := range t.Stack {
		if f.Kind == stack.KindPython && !f.Library {
			break
		}
		method := f.Function[strings.LastIndexByte(f.Function, '.')+1:]
		if slices.Contains(supervisors[stack.ShortFile(f.File)], method) {
			return supervises
		}
	}
	if t.Syscall == "futex" && !t.WaitsForGIL {
		return waits
	}
	return works
}

// blame picks the thread of a process that the other ranks wait for. It is the main thread or
// one that has called NCCL, whichever works; of equals the main thread. A thread that issues
// collectives for others, as autograd's or one with a queue, waits while the training loop
// is somewhere else. Where the main thread only waits for other threads, and those that
// call NCCL do nothing either, it is any other thread that works. ok is false for a process
// without threads of Python.
func blame(threads map[Thread]Trace, pid uint32, callers map[uint32]bool) (tid uint32, ok bool) {
	type candidate struct {
		tid uint32
		idleness
	}
	var likely, all []candidate
	isSupervisor := true
	for t, trace := range threads {
		if t.PID != pid || len(trace.Stack) == 0 {
			continue
		}
		c := candidate{t.TID, trace.idleness()}
		all = append(all, c)
		if t.TID == pid {
			isSupervisor = c.idleness == supervises
		}
		if t.TID == pid || callers[t.TID] {
			likely = append(likely, c)
		}
	}
	best := func(of []candidate) (candidate, bool) {
		if len(of) == 0 {
			return candidate{}, false
		}
		return slices.MinFunc(of, func(a, b candidate) int {
			first := func(c candidate) int {
				switch {
				case c.tid == pid:
					return 0
				case callers[c.tid]:
					return 1
				}
				return 2
			}
			return cmp.Or(cmp.Compare(a.idleness, b.idleness), cmp.Compare(first(a), first(b)), cmp.Compare(a.tid, b.tid))
		}), true
	}
	c, ok := best(likely)
	if !ok || c.idleness != works && isSupervisor {
		c, ok = best(all)
	}
	return c.tid, ok
}

// place is where a thread is, as texts.
type place struct {
	tid   uint32   // 0: not known
	lines []string // innermost first
	user  string   // the innermost that is the program's own, "" if not known
}

func placeOf(tid uint32, s stack.Stack) place {
	p := place{tid: tid, user: s.User().Label()}
	for _, f := range s {
		p.lines = append(p.lines, f.Label())
	}
	return p
}

// where is both lines of a place, human-readable; "" if none is known.
func (p place) where() string {
	if len(p.lines) == 0 {
		return ""
	}
	if p.user != "" && stack.ParseLabel(p.lines[0]).IsDriver() {
		return p.user // as stack.Stack.Where
	}
	return stack.Where(p.user, p.lines[0])
}
