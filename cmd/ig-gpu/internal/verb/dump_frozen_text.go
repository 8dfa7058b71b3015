// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/frozen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/waits"
)

// describeStill is the text of a comparison: what is certain first, then each process.
func describeStill(all []still) string {
	var b strings.Builder
	frozenOnes := 0
	for _, s := range all {
		if s.Motion == string(frozen.Frozen) {
			frozenOnes++
		}
		if len(s.Circle) > 0 && s.Circle[0] == s.PID {
			describeCircle(&b, s)
		}
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "%d of %d processes did not move.\n", frozenOnes, len(all))
	}
	for _, s := range all {
		b.WriteString("\n")
		describeProcess(&b, s.clean())
	}
	return b.String()
}

// clean is a process whose names drive no terminal: it chose them, and those of its files.
func (s still) clean() still {
	s.Process, s.Threads = screen.Clean(s.Process), slices.Clone(s.Threads)
	for n := range s.Threads {
		t := &s.Threads[n]
		t.State, t.Place, t.Waits = screen.Clean(t.State), screen.Clean(t.Place), slices.Clone(t.Waits)
		for i := range t.Waits {
			w := &t.Waits[i]
			w.Syscall, w.Name, w.Address = screen.Clean(w.Syscall), screen.Clean(w.Name), screen.Clean(w.Address)
		}
	}
	return s
}

func describeCircle(b *strings.Builder, s still) {
	what := fmt.Sprintf("each Python thread of process %d waits for a lock of the process", s.PID)
	if len(s.Circle) > 1 {
		way := joined(append(slices.Clone(s.Circle), s.PID))
		what = fmt.Sprintf("processes %s wait for each other (%s)", joined(s.Circle), strings.ReplaceAll(way, ", ", " → "))
	}
	if s.IsDeadlock {
		fmt.Fprintf(b, "Deadlock: %s, and nothing else can wake a thread. No line changed for %gs.\n", what, s.Seconds)
		return
	}
	fmt.Fprintf(b, "%s%s. No line changed for %gs; another thread, a timer or a device may still wake them.\n", strings.ToUpper(what[:1]), what[1:], s.Seconds)
}

func describeProcess(b *strings.Builder, s still) {
	switch frozen.Motion(s.Motion) {
	case frozen.Moves:
		main := slices.IndexFunc(s.Threads, func(t stillThread) bool { return t.TID == s.PID && t.Motion == string(frozen.Frozen) })
		if main < 0 {
			fmt.Fprintf(b, "Process %d %s moves.\n", s.PID, s.Process)
			return
		}
		fmt.Fprintf(b, "Process %d %s moves, but its main thread did not for %gs:\n", s.PID, s.Process, s.Seconds)
		b.WriteString(describeLoads(s.GPUs))
		describeThread(b, s.PID, s.Threads[main])
		return
	case frozen.Loops:
		fmt.Fprintf(b, "Process %d %s moves within one function only, as a loop that polls does:\n", s.PID, s.Process)
	case frozen.Runs:
		fmt.Fprintf(b, "Process %d %s runs, but no line changed for %gs: it computes, or waits for a GPU by polling.\n", s.PID, s.Process, s.Seconds)
	default:
		fmt.Fprintf(b, "Process %d %s is frozen: no line changed for %gs.\n", s.PID, s.Process, s.Seconds)
	}
	b.WriteString(describeLoads(s.GPUs))
	others := 0
	for _, t := range s.Threads {
		others++
		if t.TID == s.PID || t.Motion == string(frozen.Loops) || t.Motion == string(frozen.Runs) || slices.ContainsFunc(t.Waits, func(w waited) bool { return len(w.PIDs) > 0 || w.Address != "" }) {
			others--
			describeThread(b, s.PID, t)
		}
	}
	if others == 1 {
		b.WriteString("  and another thread, which no other process can wake: ig-gpu dump shows it\n")
	} else if others > 1 {
		fmt.Fprintf(b, "  and %d other threads, which no other process can wake: ig-gpu dump shows them\n", others)
	}
}

// stateStopped is the state of a thread that SIGSTOP or a debugger stopped. Its system call says nothing of why it
// does not move.
const stateStopped = "stopped"

func describeThread(b *strings.Builder, pid uint32, t stillThread) {
	fmt.Fprintf(b, "  thread %d at %s", t.TID, t.Place)
	if len(t.Lines) == 2 && t.Lines[0] < t.Lines[1] {
		fmt.Fprintf(b, ", between lines %d and %d", t.Lines[0], t.Lines[1])
	}
	b.WriteString("\n")
	if t.State == stateStopped {
		fmt.Fprintf(b, "    is stopped by a signal or a debugger: kill -CONT %d continues it, unless a debugger holds it\n", pid)
		return
	}
	if len(t.Waits) == 0 {
		fmt.Fprintf(b, "    is %s, in no system call that waits\n", t.State)
	}
	for _, w := range t.Waits {
		switch kind := waits.Kind(w.Kind); {
		case kind == waits.Timer:
			fmt.Fprintf(b, "    sleeps in %s until its time is over\n", w.Syscall)
		case kind == waits.Lock:
			fmt.Fprintf(b, "    waits in %s for %s\n", w.Syscall, w.Name)
		case kind == waits.Child && len(w.PIDs) > 0:
			fmt.Fprintf(b, "    waits in %s for its child %s to end\n", w.Syscall, joined(w.PIDs))
		case len(w.PIDs) > 0:
			fmt.Fprintf(b, "    waits in %s for %s, which process %s can end\n", w.Syscall, w.Name, joined(w.PIDs))
		case w.Address != "":
			fmt.Fprintf(b, "    waits in %s for %s to %s\n", w.Syscall, w.Name, w.Address)
		default:
			fmt.Fprintf(b, "    waits in %s for %s\n", w.Syscall, w.Name)
		}
	}
}
