// SPDX-License-Identifier: Apache-2.0

// Package ooms says at the end of a run which allocations failed, and who held
// the memory then. Rows of the data source `ooms` are printed when they happen,
// and on a terminal the next table is drawn over them.
package ooms

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
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

// Failure is one allocation that failed: by the driver, or by By. Where Error is not that there was no
// memory, it has nothing to do with who holds it.
type Failure struct {
	Comm, API, Error, Frame, Holders string
	// By is the data source's refused_by.
	By                         string
	PID                        uint32
	RequestedBytes, InuseBytes uint64
	// Pool is PyTorch's own account of its pool, where that refused.
	Pool Pool
}

// Pool has the bytes of a device that PyTorch had reserved, and those that it had allocated of them.
type Pool struct {
	AllocatedBytes, ReservedBytes uint64
	Unused                        Unused
	// Refused is the driver's function that refused the process last before, since the
	// pool refused; "": none did, though the driver is what a pool asks first.
	Refused string
	// By is who refused there: the driver, or a library in front of it.
	By string
}

// Unused are the bytes that a pool did not use, by reason, from the operator torch. All 0: unknown.
type Unused struct{ PiecesBytes, ApartBytes, KeptBytes uint64 }

// expandableAPI is the function that only expandable segments call.
const expandableAPI = "cuMemCreate"

// why says what a request failed of, as far as the two totals prove it; "" for a pool
// that had nothing reserved.
func (p Pool) why(requested uint64) string {
	if p.ReservedBytes == 0 {
		return ""
	}
	unused := p.ReservedBytes - min(p.AllocatedBytes, p.ReservedBytes)
	text := fmt.Sprintf("PyTorch's pool uses %s of its %s", size(p.AllocatedBytes), size(p.ReservedBytes))
	switch {
	case p.Refused == "":
		return text + ", and the driver was not seen to refuse: it may be the pool's own limit (set_per_process_memory_fraction)"
	case unused < requested:
		return text + ", and the driver had no more" + p.limit()
	case p.Unused == Unused{}:
		// Segments without a block in use had been returned before, except those of private pools.
		return text + fmt.Sprintf(": the %s that it does not use are in %s, or kept for other streams or CUDA graphs", size(unused), p.pieces(true))
	}
	parts := []part{
		{p.Unused.PiecesBytes, "in " + p.pieces(p.Unused.PiecesBytes >= requested)},
		{p.Unused.KeptBytes, "kept in segments without a tensor, as CUDA graphs and other private pools do"},
		{p.Unused.ApartBytes, "in pieces that are large enough, for another stream or of a private pool"},
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.bytes, a.bytes) })
	var said []string
	for _, part := range parts {
		if part.bytes > unused/100 {
			said = append(said, size(part.bytes)+" are "+part.is)
		}
	}
	return text + ": " + strings.Join(said, "; ")
}

// limit says whose decision the driver's was.
func (p Pool) limit() string {
	if profile.ErrorBy("", p.By) == "" {
		return ""
	}
	return " by the limit of " + p.By
}

// part is one of what a pool does not use.
type part struct {
	bytes uint64
	is    string
}

// pieces names fragmentation, and what is made for it where that is all it failed of.
func (p Pool) pieces(advise bool) string {
	const text = "pieces that are too small"
	switch {
	case p.Refused == expandableAPI:
		return text + ", though expandable segments are on"
	case advise:
		return text + " (fragmentation; expandable segments or max_split_size_mb of PYTORCH_CUDA_ALLOC_CONF are made for that)"
	}
	return text
}

// size is human-readable. A process may request up to 2⁶⁴ − 1 bytes.
func size(bytes uint64) string { return profile.FormatBytes(int64(min(bytes, math.MaxInt64))) }

// refusal is a function of the driver that refused, and who did.
type refusal struct{ api, by string }

// refusals remembers by pid which refused memory last. It is used by one subscriber at a time.
type refusals map[uint32]refusal

// before gives what refused a process before its pool did, and notes what the driver
// refuses because it has no memory. Events come in their order.
func (r refusals) before(f Failure) refusal {
	pid := f.PID
	if f.API == profile.PoolAPI {
		defer delete(r, pid)
		return r[pid]
	}
	if !profile.IsOutOfMemory(f.Error) {
		return refusal{}
	}
	if len(r) >= maxGroups {
		clear(r)
	}
	r[pid] = refusal{f.API, f.By}
	return refusal{}
}

// group has the properties of failures that count as the same.
type group struct {
	pid                   uint32
	api, error, frame, by string
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
	g := group{f.PID, f.API, f.Error, f.Frame, f.By}
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
		if lacks := entries[i].newest.lacksMemory(); lacks != entries[j].newest.lacksMemory() {
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

// lacksMemory reports whether there was no memory for it.
func (f *Failure) lacksMemory() bool { return profile.IsOutOfMemory(f.Error) }

// line is the newest failure of a group, with how many there were.
func (e *entry) line() string {
	f := &e.newest
	line := "allocation failed"
	if e.count > 1 {
		line += fmt.Sprintf(" %d times", e.count)
	}
	if !f.lacksMemory() {
		line += ", not for lack of memory"
	}
	if e.count > 1 {
		line += ", last"
	}
	line += fmt.Sprintf(": %s[%d] %s of %s at %s: %s", f.Comm, f.PID, f.API, size(f.RequestedBytes), f.Frame, profile.ErrorBy(f.Error, f.By))
	if !f.lacksMemory() {
		return line
	}
	line += "; " + profile.HeldAt(f.API, int64(min(f.InuseBytes, math.MaxInt64)))
	if f.Holders != "" {
		line += ": " + f.Holders
	}
	if why := f.Pool.why(f.RequestedBytes); why != "" {
		line += "; " + why
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
	text := func(name string) func(datasource.Data) string {
		field := i.source.GetField(name)
		return func(d datasource.Data) string {
			if field == nil {
				return ""
			}
			s, _ := field.String(d)
			return s
		}
	}
	number := func(name string) func(datasource.Data) uint64 {
		field := i.source.GetField(name)
		return func(d datasource.Data) uint64 {
			if field == nil {
				return 0
			}
			n, _ := field.Uint64(d)
			return n
		}
	}
	comm, call, reason := text("proc.comm"), text("api"), text("error")
	where, holders, by := text("where"), text("holders"), text("refused_by")
	requested, inuse := number("requested_bytes"), number("inuse_bytes")
	allocated, reserved := number("pool_allocated_bytes"), number("pool_reserved_bytes")
	pieces, apart, kept := number("pool_pieces_bytes"), number("pool_apart_bytes"), number("pool_kept_bytes")
	pid := i.source.GetField("proc.pid")
	var mu sync.Mutex
	refused := refusals{}
	err := i.source.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		f := Failure{
			Comm: comm(d), API: call(d), Error: reason(d), Frame: where(d), Holders: holders(d), By: by(d),
			RequestedBytes: requested(d), InuseBytes: inuse(d), Pool: Pool{
				AllocatedBytes: allocated(d), ReservedBytes: reserved(d),
				Unused: Unused{PiecesBytes: pieces(d), ApartBytes: apart(d), KeptBytes: kept(d)},
			},
		}
		if pid != nil {
			f.PID, _ = pid.Uint32(d)
		}
		mu.Lock()
		before := refused.before(f)
		f.Pool.Refused, f.Pool.By = before.api, before.by
		mu.Unlock()
		i.log.Add(f)
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
