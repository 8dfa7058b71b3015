// SPDX-License-Identifier: Apache-2.0

package pages

import "time"

const (
	// grace is how long a visit may hold up what waits for it. One takes less
	// than a millisecond where the pages are in the page cache.
	grace = 200 * time.Millisecond
	// maxVisits bounds those that continue after their caller has returned.
	maxVisits = 8
)

// Visitor visits processes one after the other. Its methods may be called from
// several goroutines.
type Visitor struct {
	procfs string
	free   chan struct{}
	visit  func(procfs string, pid uint32) (uint64, error)
}

// NewVisitor returns a Visitor of the processes in procfs, default /proc.
func NewVisitor(procfs string) *Visitor {
	if procfs == "" {
		procfs = "/proc"
	}
	return &Visitor{procfs: procfs, free: make(chan struct{}, maxVisits), visit: Python}
}

// Visit is Python, but it returns soon: what the process does not give at once is
// read in the background. Errors are left out, as a process may end at any time,
// and what is missing then is counted where it is missed.
func (v *Visitor) Visit(pid uint32) {
	select {
	case v.free <- struct{}{}:
	default:
		return // as many as that do not return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-v.free }()
		_, _ = v.visit(v.procfs, pid)
	}()
	select {
	case <-done:
	case <-time.After(grace):
	}
}
