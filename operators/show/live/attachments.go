// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
)

// attachment is a row of the data source `attachments`.
type attachment struct {
	pid, functions                     int64
	status, path, build, failure, comm string
}

// Statuses of an attachment. All others are reasons why it is none.
const (
	statusAttached = "attached"
	statusGone     = "gone"
)

// attachments are the libraries that have probes. The zero value is ready.
type attachments struct {
	processes map[int64]map[library]int64 // with the number of functions
	// refused is the last attempt that failed while nothing was attached to.
	refused string
}

// library is a file of a process, whose path may become that of another one.
type library struct{ path, build string }

func (s *attachments) take(a attachment) {
	of := library{a.path, a.build}
	switch a.status {
	case statusAttached:
		if s.processes == nil {
			s.processes = map[int64]map[library]int64{}
		}
		if s.processes[a.pid] == nil {
			s.processes[a.pid] = map[library]int64{}
		}
		s.processes[a.pid][of] = a.functions
		s.refused = ""
	case statusGone:
		delete(s.processes[a.pid], of)
		if len(s.processes[a.pid]) == 0 {
			delete(s.processes, a.pid)
		}
	default:
		if len(s.processes) == 0 {
			s.refused = fmt.Sprintf("%s of %s[%d]: %s", a.path, a.comm, a.pid, a.why())
		}
	}
}

// why it is not attached to.
func (a *attachment) why() string {
	if a.failure == "" {
		return a.status
	}
	return a.status + ", " + a.failure
}

// text is how many processes are traced, and how many functions of the one with the
// most; "": none.
func (s *attachments) text() string {
	if len(s.processes) == 0 {
		return ""
	}
	functions := int64(0)
	for _, files := range s.processes {
		n := int64(0)
		for _, of := range files {
			n += of
		}
		functions = max(functions, n)
	}
	return plural(len(s.processes), "process", "processes") + ", " + plural(int(functions), "function", "functions")
}

func (s *Screen) attached(a attachment) {
	s.mu.Lock()
	s.attachments.take(a)
	s.changed()
	s.mu.Unlock()
	if a.failure != "" {
		s.message(message{kind: "attachment", of: fmt.Sprint(a.pid), key: "attach " + a.path + a.failure, counted: true, style: screen.Yellow,
			text: fmt.Sprintf("not attached to %s of %s[%d]: %s", a.path, a.comm, a.pid, a.failure)})
	}
}
