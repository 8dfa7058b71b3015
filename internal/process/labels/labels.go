// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// Other is the value of a label of processes, spans or stacks beyond the limit of different values.
	Other = "other"
	// maxLength of a value in bytes; longer ones are cut.
	maxLength = 64
	// maxTitle bounds what expressions are matched against, in bytes.
	maxTitle = 32 << 10
	// again is how often a process without a value is read again: it may set its title late.
	again = 10 * time.Second
	// forget is after how long processes without rows are forgotten.
	forget = 10 * time.Minute
	// forgetRows is the same for spans and stacks, of which a process has thousands.
	forgetRows = 30 * time.Second
)

// Config of a Set.
type Config struct {
	ProcFS string // such as /proc
	Rules  Rules
	// Values is how many different values each label has at most, at a time, and a tenant three quarters of them. More are Other.
	// A value counts until the processes that have it, or had it in a row, have no rows for some time.
	Values int
	// Warn is called once for each label that has more; may be nil.
	Warn func(label string)
	Now  func() time.Time // time.Now if nil
}

// Set has the labels of processes. It is safe for concurrent use.
type Set struct {
	cfg Config

	mu        sync.Mutex
	processes map[uint64]*entry
	values    []map[string]procmaps.Tenant // of each rule, and who had it first
	others    []uint64                     // processes, spans or stacks with Other, of each rule
	swept     time.Time

	rows      map[rowKey]*rowEntry
	rowsSwept time.Time
}

type rowKey struct{ process, span, stack uint64 }

type rowEntry struct {
	of   string // the labels of the process that text was made with
	text string
	used time.Time
}

type entry struct {
	tenant procmaps.Tenant
	values []string
	// ofRows are the values that its spans and stacks ever had, of each rule: counters keep the sums of rows that are
	// forgotten, so that each is a series until the process ends.
	ofRows     []map[string]bool
	text       string
	complete   bool
	read, used time.Time
}

// New returns a Set.
func New(cfg Config) *Set {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string) {}
	}
	s := &Set{cfg: cfg, processes: map[uint64]*entry{}, others: make([]uint64, len(cfg.Rules)), swept: cfg.Now(),
		rows: map[rowKey]*rowEntry{}, rowsSwept: cfg.Now()}
	for range cfg.Rules {
		s.values = append(s.values, map[string]procmaps.Tenant{})
	}
	return s
}

// Of returns the labels of a process as Encode writes them: all labels, with empty values
// where the process has none. A value that was found stays, even if the title changes, so
// that a process does not change its series. id is unique, pid may be reused: it is the
// caller's who asks while the process runs.
func (s *Set) Of(id uint64, pid uint32) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(id, pid, s.cfg.Now()).text
}

// Row has the span and the stack of a row, on which labels may depend; both may be zero.
type Row struct {
	// Span is the id of the span that the work was done for, Attribute gives what it has.
	Span      uint64
	Attribute func(name string) string
	// Stack is the id of the row's stack, Frames gives its frames, `qualname (file)`, root first.
	Stack  uint64
	Frames func() []string
}

// OfRow returns the labels of a row: those of Of, and those of its span and its stack, which are
// requested when they are new.
func (s *Set) OfRow(id uint64, pid uint32, row Row) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	process := s.of(id, pid, now)
	if row.Span == 0 && row.Stack == 0 {
		return process.text
	}
	s.sweepRows(now)
	key := rowKey{id, row.Span, row.Stack}
	e := s.rows[key]
	if e == nil || e.of != process.text {
		pairs := make([][2]string, len(s.cfg.Rules))
		for i, r := range s.cfg.Rules {
			value := process.values[i]
			switch {
			case r.Span != "" && row.Span != 0:
				value = s.admitRow(i, process, row.Attribute(r.Span))
			case r.Frame != nil && row.Stack != 0:
				value = s.admitRow(i, process, r.matchFrames(row.Frames()))
			}
			pairs[i] = [2]string{r.Name, value}
		}
		e = &rowEntry{of: process.text, text: Encode(pairs)}
		s.rows[key] = e
	}
	e.used = now
	return e.text
}

func (s *Set) of(id uint64, pid uint32, now time.Time) *entry {
	s.sweep(now)
	e := s.processes[id]
	if e == nil {
		e = &entry{tenant: procmaps.TenantOf(s.cfg.ProcFS, pid), values: make([]string, len(s.cfg.Rules)),
			ofRows: make([]map[string]bool, len(s.cfg.Rules))}
		s.processes[id] = e
	}
	e.used = now
	if e.read.IsZero() || !e.complete && now.Sub(e.read) >= again {
		e.read = now
		s.fill(e, pid)
	}
	return e
}

// Others is for how many processes, spans or stacks a label is Other, by the label's name.
func (s *Set) Others() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]uint64{}
	for i, n := range s.others {
		if n > 0 {
			all[s.cfg.Rules[i].Name] = n
		}
	}
	return all
}

func (s *Set) fill(e *entry, pid uint32) {
	var environment memory.Environment
	title, isRead := "", false
	e.complete = true
	pairs := make([][2]string, len(s.cfg.Rules))
	for i, r := range s.cfg.Rules {
		if r.Span != "" || r.Frame != nil {
			pairs[i] = [2]string{r.Name, ""}
			continue
		}
		if e.values[i] == "" {
			found := ""
			if r.Variable != "" {
				if environment == nil {
					environment, _ = memory.ReadInherited(s.cfg.ProcFS, pid, memory.MaxBytes) // nothing if it has exited
				}
				if values := environment.Values(r.Variable); len(values) > 0 {
					found = values[0]
				}
			} else {
				if !isRead {
					title, isRead = memory.CommandLine(s.cfg.ProcFS, pid, maxTitle), true
				}
				found = r.match(title)
			}
			e.values[i] = s.admit(i, e.tenant, clean(found))
		}
		e.complete = e.complete && e.values[i] != ""
		pairs[i] = [2]string{r.Name, e.values[i]}
	}
	e.text = Encode(pairs)
}

// admit bounds the number of different values, of all and of each tenant.
func (s *Set) admit(rule int, tenant procmaps.Tenant, value string) string {
	known := s.values[rule]
	if _, is := known[value]; is || value == "" {
		return value
	}
	if !s.hasRoom(known, tenant) {
		if s.others[rule]++; s.others[rule] == 1 {
			s.cfg.Warn(s.cfg.Rules[rule].Name)
		}
		return Other
	}
	known[value] = tenant
	return value
}

// admitRow does so for the value of a row, which its process keeps.
func (s *Set) admitRow(rule int, process *entry, value string) string {
	value = s.admit(rule, process.tenant, clean(value))
	if process.ofRows[rule] == nil {
		process.ofRows[rule] = map[string]bool{}
	}
	process.ofRows[rule][value] = true
	return value
}

// hasRoom reports whether a tenant may have one more value.
func (s *Set) hasRoom(known map[string]procmaps.Tenant, tenant procmaps.Tenant) bool {
	return throttle.HasRoomIn(known, s.cfg.Values, func(_ string, of procmaps.Tenant) bool { return of == tenant })
}

func (s *Set) sweep(now time.Time) {
	if now.Sub(s.swept) < forget {
		return
	}
	s.swept = now
	for id, e := range s.processes {
		if now.Sub(e.used) >= forget {
			delete(s.processes, id)
		}
	}
	s.sweepRows(now)
	s.freeValues()
}

func (s *Set) sweepRows(now time.Time) {
	if now.Sub(s.rowsSwept) < forgetRows {
		return
	}
	s.rowsSwept = now
	for key, e := range s.rows {
		if now.Sub(e.used) >= forgetRows {
			delete(s.rows, key)
		}
	}
}

// freeValues leaves the room of values that no process has any more, nor had in a row, to others: a
// daemon sees more jobs than it has values.
func (s *Set) freeValues() {
	inUse := make([]map[string]bool, len(s.values))
	for i := range inUse {
		inUse[i] = map[string]bool{}
		for _, e := range s.processes {
			inUse[i][e.values[i]] = true
			maps.Copy(inUse[i], e.ofRows[i])
		}
	}
	for i, known := range s.values {
		maps.DeleteFunc(known, func(value string, _ procmaps.Tenant) bool { return !inUse[i][value] })
	}
}

// match returns the value that a title has.
func (r *Rule) match(title string) string {
	value := submatch(r.Title, title)
	if slices.Contains(r.Pending, value) {
		return ""
	}
	return value
}

// matchFrames returns the value of the first frame that matches, which is nearest to the root.
func (r *Rule) matchFrames(frames []string) string {
	for _, frame := range frames {
		if value := submatch(r.Frame, frame); value != "" {
			return value
		}
	}
	return ""
}

// submatch returns the first group of a match, or the whole match where there is no group.
func submatch(expression *regexp.Regexp, text string) string {
	m := expression.FindStringSubmatch(text)
	if len(m) == 0 {
		return ""
	}
	return m[min(1, len(m)-1)]
}

// clean makes a value that every backend takes: a process chooses it.
func clean(value string) string {
	value = strings.Map(func(c rune) rune {
		if c == utf8.RuneError || !unicode.IsPrint(c) {
			return '_'
		}
		return c
	}, value)
	if len(value) > maxLength {
		value = strings.ToValidUTF8(value[:maxLength], "")
	}
	return strings.TrimSpace(value)
}
