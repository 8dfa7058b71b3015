// SPDX-License-Identifier: Apache-2.0

package pages

import "time"

const (
	// grace is how long a visit may block its caller. A visit takes less than a
	// millisecond if the pages are in the page cache.
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

// Visit calls Python, but returns within grace: the rest is read in the background.
// Errors are ignored, because a process may end at any time, and the gadget counts pages
// that are missing then.
func (v *Visitor) Visit(pid uint32) {
	select {
	case v.free <- struct{}{}:
	default:
		return // that many do not return
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
