// SPDX-License-Identifier: Apache-2.0

// Package top is what `ig-gpu top` and the tables of `ig-gpu run` show: the rows of a
// gadget, grouped by line of Python or by something else, sorted, and compared with an
// earlier moment. It is pure: rows and keys go in, lines of text come out.
//
// Whatever the grouping, the rows of a table add up to its totals, and these to what the
// gadget counted. Memory of PyTorch's pools and the driver's memory that it lies in never
// share a row, and have a total each.
package top

import (
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Row is one of a gadget, with its counters since the gadget has run.
type Row struct {
	profile.Row
	// Kernel is the name of what was launched; "": nothing, or it is not known.
	Kernel string
}

// View is which numbers are shown.
type View uint8

const (
	Memory View = iota
	Launches
	Waits
	Samples
)

// String is the view's name on the screen.
func (v View) String() string { return [...]string{"memory", "launches", "waits", "samples"}[v] }

// Subject is the subject of the view's rows.
func (v View) Subject() profile.Subject {
	switch v {
	case Memory:
		return profile.Memory
	case Samples:
		return profile.CPU
	}
	return profile.Calls
}

// ViewsOf are those of a gadget's rows.
func ViewsOf(s profile.Subject) []View {
	switch s {
	case profile.Memory:
		return []View{Memory}
	case profile.Calls:
		return []View{Launches, Waits}
	}
	return []View{Samples}
}

// By is the property whose equal values are merged into one row.
type By uint8

const (
	ByLine By = iota
	ByStack
	ByProcess
	ByDevice
	ByPod
	ByKernel
)

var byNames = []string{"line", "stack", "process", "device", "pod", "kernel"}

// String is the word of --by.
func (b By) String() string { return byNames[b] }

// Names are the words of --by.
func Names() []string { return slices.Clone(byNames) }

// Parse reads a word of --by.
func Parse(word string) (By, bool) {
	n := slices.Index(byNames, word)
	return By(max(n, 0)), n >= 0
}

// table is the rows of one subject: now, at the reading before, and at the mark.
type table struct {
	now, before, base    []Row
	at, beforeAt, markAt time.Time
	hasBefore, isMarked  bool
}

// Model is the state of a table at a terminal. It is not safe for concurrent use.
type Model struct {
	tables map[profile.Subject]*table
	// Views are those that can be chosen; View is the one that is.
	Views []View
	View  View
	By    By
	// Diff: what has changed since the mark is shown. Marks is how many there were.
	Diff  bool
	Marks int
	// Tree: callers are shown with what they called.
	Tree bool
	// First is how many rows above the screen are.
	First int
	// sorted is the column of each view by which rows are sorted, by its title; "": the
	// view's own.
	sorted map[View]string
}

// New is a model with these views, of which the first is shown.
func New(by By, views ...View) *Model {
	return &Model{tables: map[profile.Subject]*table{}, Views: views, View: views[0], By: by, sorted: map[View]string{}}
}

// Update replaces the rows of a subject.
func (m *Model) Update(subject profile.Subject, at time.Time, rows []Row) {
	t := m.table(subject)
	if !t.at.IsZero() {
		t.before, t.beforeAt, t.hasBefore = t.now, t.at, true
	}
	t.now, t.at = rows, at
	if m.Marks > 0 && !t.isMarked { // it has begun since
		t.isMarked, t.markAt = true, at
	}
}

func (m *Model) table(subject profile.Subject) *table {
	if subject == profile.Wall {
		subject = profile.CPU
	}
	t := m.tables[subject]
	if t == nil {
		t = &table{}
		m.tables[subject] = t
	}
	return t
}

// Mark makes this moment the one that Diff compares with.
func (m *Model) Mark(at time.Time) {
	m.Marks++
	for _, t := range m.tables {
		t.base, t.markAt, t.isMarked = t.now, at, true
	}
}

// Empty reports whether nothing was read of the view yet.
func (m *Model) Empty() bool { return m.table(m.View.Subject()).at.IsZero() }

// SinceMark is when the mark was set that the view is compared with.
func (m *Model) SinceMark() (time.Time, bool) {
	t := m.table(m.View.Subject())
	return t.markAt, t.isMarked
}

// label is the frame that a row is attributed to: the innermost one of the program's own
// Python, else of any, else the innermost native one outside of the driver, else the innermost that is not the kernel.
func label(r *Row) string {
	s := r.Stack
	if r.Kernel != "" && len(s) > 1 {
		s = s[1:]
	}
	return s.User().Label()
}
