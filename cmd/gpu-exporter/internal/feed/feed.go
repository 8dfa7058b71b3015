// SPDX-License-Identifier: Apache-2.0

// Package feed passes the data of one gadget instance on one node, as its daemon sends it
// to clients, to the exporters of profiles and metrics.
//
// A daemon first replays up to 1024 earlier packets to a client that attaches, and does
// not mark their end. Rows are cumulative, so the newest packets are sufficient: packets
// are buffered at first, and the newest are read after a pause. Counters are compared
// with their values before the connection was lost, if there was one, so that nothing is
// lost or counted twice.
package feed

import (
	"errors"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// ErrNoRows means that a gadget emits no data that we use.
var ErrNoRows = errors.New("the gadget has no rows of allocations, samples or ranks")

// ring is how many packets a daemon keeps to send again (pkg/gadget-service/
// instance-manager, v0.55.0: RunGadget's eventBuffer).
const ring = 1024

// Sender is where windows go; *export.Sender is one.
type Sender interface {
	Interval() time.Duration
	Offer(func() window.Window)
	Put(window.Window)
	OOM(profile.OOM)
}

// Config of a feed.
type Config struct {
	Sender Sender         // nil: no profiles
	Store  *metrics.Store // nil: no metrics
	Node   string         // for rows without a node
	Gadget string
	Texts  *Texts // of all feeds
	// Ranks is the node in a joiner of ranks of NCCL; nil: they are not joined.
	Ranks *ranks.Node
	// IsOther reports whether the node has another daemon; may be nil.
	IsOther func(node string) bool
	// Warn reports data of a node that could not be used; may be nil.
	Warn func(error)
	// IsNew: the instance started after this process, so that everything it has
	// counted is to be sent. Earlier counts of other instances are not sent: an
	// earlier exporter may have done so.
	IsNew bool
}

// Feed remembers one instance over any number of connections. It is for one
// goroutine at a time.
type Feed struct {
	cfg      Config
	recorder *window.Recorder // nil until there were rows
	run      *metrics.Run     // nil while metrics are not published
	spans    *metrics.MemorySpans
	stacks   map[uint64]parsed
	bytes    int                        // of stacks
	named    map[uint64]profile.Process // those with a row, by their id
	seen     uint64                     // packets that the instance has emitted, as far as known
	known    bool                       // there was a connection
	instance string                     // identifies the run of the gadget, if the daemon reports it
	baseline bool                       // the next rows are only where counting begins
	oom      time.Time
}

// New returns a feed without a connection.
func New(cfg Config) *Feed {
	f := &Feed{cfg: cfg, spans: metrics.NewMemorySpans(), stacks: map[uint64]parsed{}, named: map[uint64]profile.Process{}}
	if !cfg.IsNew {
		f.oom = time.Now()
	}
	return f
}

// Disconnected sends the data that has not been sent yet.
func (f *Feed) Disconnected(now time.Time) {
	if f.recorder == nil || f.baseline {
		return
	}
	if w := f.recorder.Close(now); len(w.Rows) > 0 {
		f.cfg.Sender.Put(w)
	}
}

// Hide ends the series of metrics until there are rows again.
func (f *Feed) Hide() {
	if f.run != nil {
		f.run.Close()
		f.run = nil
	}
}

// begin is called before the first rows of a connection, with the number of packets that
// the daemon had kept: exact below ring, otherwise at least ring. If the daemon
// identifies the run of the gadget, that decides; it may then keep no tables.
func (f *Feed) begin(instance string, emitted uint64) {
	isWhole, isAnother := emitted < ring, emitted < ring && emitted < f.seen
	if instance != "" {
		isWhole, isAnother = true, instance != f.instance
	}
	if !f.known {
		f.baseline = !(f.cfg.IsNew && isWhole)
	}
	if f.known && isAnother {
		if f.recorder != nil {
			f.recorder.Restart()
		}
		f.Hide() // its processes have not ended
		f.spans = metrics.NewMemorySpans()
	}
	f.instance = instance
	f.seen = max(emitted, f.seen)
	if emitted < ring {
		f.seen = emitted
	}
	f.known = true
}

// podSeed keeps tenants from choosing names with the hash of others'.
var podSeed = maphash.MakeSeed()

// tenantOf is whom a process belongs to: its pod.
func tenantOf(p profile.Process) procmaps.Tenant {
	return procmaps.Tenant(maphash.String(podSeed, p.Namespace+"/"+p.Pod))
}

// rows processes one reading of all rows.
func (f *Feed) rows(s *table, now time.Time) {
	all := make([]profile.Row, 0, s.packet.Len())
	named := map[uint64]profile.Process{}
	if f.cfg.Sender != nil && f.recorder == nil {
		f.recorder = window.NewRecorder(s.source.Subject, s.source.Period, f.cfg.Sender.Interval(), now)
		f.recorder.Tenant = tenantOf
	}
	if f.recorder != nil {
		f.recorder.Begin()
	}
	for n := range s.packet.Len() {
		d := s.packet.Get(n)
		id, values := s.source.ID(d), s.source.Values(d)
		row := profile.Row{Process: f.process(s.source.Process(d)), Kind: id.Kind, Device: id.Device, Thread: id.Thread, Span: id.Span, Values: values}
		all = append(all, row)
		named[row.Process.ID] = row.Process
		if s.source.Subject == profile.Memory && f.cfg.Store != nil {
			f.spans.See(id, row)
		}
		if f.recorder != nil {
			f.recorder.See(id, values, s.version(d), func() profile.Row {
				p := s.stack(d)
				f.remember(id.StackID, p)
				row.Stack = rows.Leaf(s.source.Kernel(d), p.stack)
				return row
			})
		}
	}
	f.named = named
	if f.recorder != nil {
		f.recorder.End()
		switch {
		case f.baseline:
			f.recorder.Close(now)
		case f.recorder.Due(now):
			f.cfg.Sender.Offer(func() window.Window { return f.recorder.Close(now) })
		}
	}
	f.baseline = false
	if s.source.Subject == profile.Memory && f.metrics() != nil {
		// Whether processes live is known on their node alone: those without rows have ended.
		removed := f.spans.Removed(func(p profile.Process) bool { return named[p.ID].ID == 0 })
		f.run.Rows(append(all, removed...), func(profile.Process) bool { return false })
	}
}

func (f *Feed) metrics() *metrics.Run {
	if f.run == nil && f.cfg.Store != nil {
		f.run = f.cfg.Store.NewRunOn(f.cfg.Node, f.cfg.Gadget)
	}
	return f.run
}

// process names the node, and makes the id differ from those of other nodes. It stays in the pod
// that its earlier rows have named.
func (f *Feed) process(p profile.Process) profile.Process {
	if f.cfg.Node != "" {
		p.Node = f.cfg.Node
	}
	h := fnv.New64a()
	h.Write([]byte(p.Node))
	p.ID ^= h.Sum64()
	return p.Staying(f.named[p.ID])
}

// maxStacks bounds the stacks kept for refused allocations: twice the kernel's limit. Those that
// Texts does not keep are not kept here either.
const maxStacks = 32 << 10

func (f *Feed) remember(id uint64, p parsed) {
	if p.bytes > maxText {
		return
	}
	if len(f.stacks) >= maxStacks || f.bytes+p.bytes > maxTextBytes {
		clear(f.stacks)
		f.bytes = 0
	}
	f.bytes += p.bytes - f.stacks[id].bytes
	f.stacks[id] = p
}

// Stack implements rows.Stacks.
func (f *Feed) Stack(_ uint64, _ uint32, id uint64) *symbols.Named {
	s := stack.UnknownStack()
	if p, ok := f.stacks[id]; ok {
		s = p.stack
	}
	return &symbols.Named{Stack: s}
}

// failed processes an allocation that failed once. It counts if there was no memory.
func (f *Feed) failed(o profile.OOM, s metrics.Series) {
	if !o.Time.After(f.oom) {
		return
	}
	f.oom = o.Time
	o.Process = f.process(o.Process)
	if f.cfg.Sender != nil {
		f.cfg.Sender.OOM(o)
	}
	if f.metrics() != nil && profile.IsOutOfMemory(o.Error) {
		s.Process = o.Process
		f.run.Failed(s, o.RequestedBytes)
	}
}

func (f *Feed) warn(err error) {
	if f.cfg.Warn != nil {
		f.cfg.Warn(err)
	}
}

// Connect binds the data sources of a connection.
func (f *Feed) Connect(info *api.GadgetInfo) (*Connection, error) {
	c := &Connection{feed: f, sources: map[uint32]source{}, began: time.Now(), instance: info.GetAnnotations()[ig.AnnotationInstance]}
	for _, ds := range info.GetDataSources() {
		s, err := f.bind(ds)
		if err == nil && s == nil {
			s, err = f.bindRanks(ds)
		}
		if err != nil {
			return nil, fmt.Errorf("read the gadget's data source %q: %w", ds.GetName(), err)
		}
		if s != nil {
			c.sources[ds.GetId()] = s
			switch s.(type) {
			case *table, *rankTable:
				c.hasRows = true
			}
		}
	}
	if !c.hasRows {
		return nil, ErrNoRows
	}
	return c, nil
}
