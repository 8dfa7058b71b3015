// SPDX-License-Identifier: Apache-2.0

// Package ooms says at the end of a run which allocations failed, and who held
// the memory then. Rows of the data source `ooms` are printed when they happen,
// and on a terminal the next table is drawn over them.
package ooms

import (
	"fmt"
	"sort"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	dataSource = "ooms"
	// priority is behind the operator that names stacks and holders (50).
	priority = 9900
	// maxLines bounds the summary, maxGroups the memory for processes that
	// make a new stack for every failure.
	maxLines  = 5
	maxGroups = 1000
)

// group has the properties of failures that count as the same.
type group struct {
	pid                   uint32
	api, error, frame, by string
	device                int32
}

// Log collects failures. It is safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	groups map[group]*entry
	order  int
	others int // failures beyond maxGroups
}

type entry struct {
	newest Failure
	count  int
	first  int // place in the order of groups
}

// Add records one failure.
func (l *Log) Add(f Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups == nil {
		l.groups = make(map[group]*entry)
	}
	g := group{f.PID, f.API, f.Error, f.Frame, f.By, f.Device}
	e := l.groups[g]
	if e == nil {
		if !l.hasRoom(f.PID) {
			l.others++
			return
		}
		e = &entry{first: l.order}
		l.order++
		l.groups[g] = e
	}
	// Of failures in quick succession it is known for the first.
	if last := e.newest.Pool; f.Pool.Unused == (Unused{}) && f.Pool.AllocatedBytes == last.AllocatedBytes && f.Pool.ReservedBytes == last.ReservedBytes {
		f.Pool.Unused = last.Unused
	}
	e.newest = f
	e.count++
}

// hasRoom reports whether a process may have one more group.
func (l *Log) hasRoom(pid uint32) bool {
	return throttle.HasRoomIn(l.groups, maxGroups, func(g group, _ *entry) bool { return g.pid == pid })
}

// Lines is the summary: what there was no memory for before what failed otherwise, of these the most frequent first, that of each
// process before further ones of any; nil without failures.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := make([]*entry, 0, len(l.groups))
	total := l.others
	for _, e := range l.groups {
		entries = append(entries, e)
		total += e.count
	}
	sort.Slice(entries, func(i, j int) bool {
		if lacks := entries[i].newest.LacksMemory(); lacks != entries[j].newest.LacksMemory() {
			return lacks
		}
		if entries[i].count != entries[j].count {
			return entries[i].count > entries[j].count
		}
		return entries[i].first < entries[j].first
	})
	var firsts, further []*entry
	seen := map[uint32]bool{}
	for _, e := range entries {
		if !seen[e.newest.PID] {
			seen[e.newest.PID] = true
			firsts = append(firsts, e)
		} else {
			further = append(further, e)
		}
	}
	entries = append(firsts, further...)
	var lines []string
	shown := 0
	for _, e := range entries[:min(maxLines, len(entries))] {
		lines = append(lines, screen.Clean(e.line())) // one line each, whatever processes call themselves
		shown += e.count
	}
	if total > shown {
		lines = append(lines, fmt.Sprintf("%d more allocations failed elsewhere: see --jsonl-out", total-shown))
	}
	return lines
}

// line is the newest failure of a group, with how many there were.
func (e *entry) line() string {
	f := &e.newest
	line := "allocation failed"
	if e.count > 1 {
		line += fmt.Sprintf(" %d times", e.count)
	}
	if !f.LacksMemory() {
		line += ", not for lack of memory"
	}
	if e.count > 1 {
		line += ", last"
	}
	line += fmt.Sprintf(": %s[%d] %s", f.Comm, f.PID, f.Request())
	if f.LacksMemory() {
		line += "; " + f.Held()
	}
	return line
}

// Operator prints the summary of a gadget that has the data source.
type Operator struct{}

// NewOperator returns the data operator.
func NewOperator() *Operator { return &Operator{} }

// Name implements operators.DataOperator.
func (*Operator) Name() string { return "ooms" }

// Init implements operators.DataOperator.
func (*Operator) Init(*params.Params) error { return nil }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return nil }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params { return nil }

// Priority implements operators.DataOperator.
func (*Operator) Priority() int { return priority }

// InstantiateDataOperator stays out of gadgets without the data source.
func (*Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	source, ok := gc.GetDataSources()[dataSource]
	if !ok {
		return nil, nil
	}
	return &instance{source: source}, nil
}

type instance struct {
	source datasource.DataSource
	log    Log
	warned bool
}

func (*instance) Name() string { return "ooms" }

// PreStart subscribes: by now the fields of other operators are there.
func (i *instance) PreStart(operators.GadgetContext) error {
	reader := NewReader(i.source)
	err := i.source.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		i.log.Add(reader.Read(d))
		return nil
	}, priority)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", dataSource, err)
	}
	return nil
}

func (*instance) Start(operators.GadgetContext) error { return nil }
func (*instance) Stop(operators.GadgetContext) error  { return nil }

// PostStop runs after the last event.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	if i.warned {
		return nil
	}
	i.warned = true
	for _, line := range i.log.Lines() {
		gc.Logger().Warn(line)
	}
	return nil
}

func (*instance) Close(operators.GadgetContext) error { return nil }
