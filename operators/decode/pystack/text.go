// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// write prints a human-readable dump, in the format of py-spy: a block per process, in it
// one per thread, innermost frame first. containers are names by process, if known.
func write(w io.Writer, procfs string, threads []thread, containers map[uint64]string, frames func(*thread) []string) error {
	out := bufio.NewWriter(w)
	for n := range threads {
		t := &threads[n]
		if n == 0 || t.Process != threads[n-1].Process {
			if n > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "Process %d: %s\n", t.PID, commandLine(procfs, t))
			if name := containers[t.Process]; name != "" {
				fmt.Fprintf(out, "Container %s\n", name)
			}
			fmt.Fprintf(out, "Python v%s\n\n", t.version())
		}
		fmt.Fprintf(out, "Thread %d (%s): %q", t.TID, t.activity(), t.comm)
		if t.role != "" {
			fmt.Fprintf(out, ", %s", t.role)
		}
		fmt.Fprintln(out)
		for _, line := range frames(t) {
			fmt.Fprintf(out, "    %s\n", line)
		}
	}
	return out.Flush()
}

// lines are the labels of a stack, innermost first.
func lines(s stack.Stack) []string {
	out := make([]string, len(s))
	for n, f := range s {
		out[n] = f.Label()
	}
	return out
}

// activity is the state in the words of a dump: active, active+gil, runnable,
// "idle: futex, futex_do_wait", "idle: waits for the GIL".
func (t *thread) activity() string {
	word := "active"
	switch {
	case t.State == runnable:
		word = "runnable"
	case t.State != running:
		if word = "idle"; t.State >= blocked {
			word = t.state()
		}
		var where []string
		if t.GIL == gilWaited {
			where = []string{"waits for the GIL"}
		} else {
			where = slices.DeleteFunc([]string{t.syscall(), t.wchan}, func(s string) bool { return s == "" })
		}
		if len(where) > 0 {
			word += ": " + strings.Join(where, ", ")
		}
	}
	if t.GIL == gilHeld {
		word += "+gil"
	}
	if t.Moved != 0 {
		word += ", moved"
	}
	return word
}

// commandLine returns that of the process, its name if it has ended or has none. The
// process controls it, so characters that could control a terminal are replaced.
func commandLine(procfs string, t *thread) string {
	line := memory.CommandLine(procfs, t.PID, maxTitle)
	if line == "" {
		line = t.processComm
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, line)
}
